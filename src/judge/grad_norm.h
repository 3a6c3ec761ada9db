// The gradient norm that an optimizer reports.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_JUDGE_GRAD_NORM_H_
#define TTRACE_SRC_JUDGE_GRAD_NORM_H_

#include <vector>

#include "src/experiment/side.h"
#include "src/judge/judgement.h"

namespace ttrace {

// Judges each reported norm among `tensors` against the one recomputed from the
// candidate's own reduced gradients, whatever the reference says: what is wrong
// with those is not the norm's fault. Fails if a file cannot be read.
Status JudgeGradNorms(const Side& candidate,
                      std::vector<TensorJudgement>* tensors);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_GRAD_NORM_H_
