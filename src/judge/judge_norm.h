// Judges the gradient norm that an optimizer reports against the gradients it
// is the norm of, whatever the reference says: what is wrong with those is not
// the norm's fault.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_JUDGE_JUDGE_NORM_H_
#define TTRACE_SRC_JUDGE_JUDGE_NORM_H_

#include <optional>

#include "src/judge/judgement.h"
#include "src/measure/reported_norm.h"

namespace ttrace {

// `before`: what is known of the reported value otherwise (its copies). `risk`:
// of one test.
TensorJudgement JudgeReportedNorm(const std::optional<ReportedNorm>& facts,
                                  const TensorJudgement& before, double risk);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_JUDGE_NORM_H_
