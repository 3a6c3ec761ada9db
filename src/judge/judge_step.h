// Enters what replayed steps show into the judgements of what they made:
// parameters after the step and the optimizer's state.
//
// No reference is needed: a step is judged by what its own rank recorded before
// it, and by the rounding of its own arithmetic. Where the reference's step is
// off in the same quantity, the candidate's is not judged by it: then what is
// computed is not what the settings say, in both runs.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_JUDGE_JUDGE_STEP_H_
#define TTRACE_SRC_JUDGE_JUDGE_STEP_H_

#include <set>
#include <vector>

#include "src/judge/judgement.h"
#include "src/step/replayed_step.h"

namespace ttrace {

// Why a step was not made again on `ranks`.
Reason ReasonOf(const StepGap& gap, const std::set<int>& ranks);

// Changes judgements of roles param_updated and optim_state only, and of these
// none that is diverged already, but for the tests that it adds.
void JudgeSteps(const ReplayedSteps& candidate, const ReplayedSteps& reference,
                std::vector<TensorJudgement>* tensors);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_JUDGE_STEP_H_
