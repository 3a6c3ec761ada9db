// From what was measured of two sides to one TensorJudgement per logical
// tensor.
//
// Thread safety: JudgeRun runs its own threads; the result does not depend on
// their number.

#ifndef TTRACE_SRC_JUDGE_JUDGE_RUN_H_
#define TTRACE_SRC_JUDGE_JUDGE_RUN_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "src/judge/judgement.h"
#include "src/measure/measure_run.h"
#include "src/measure/measurements.h"
#include "ttrace/status.h"

namespace ttrace {

struct JudgeOutcome {
  std::vector<TensorJudgement> tensors;  // by order; unmatched ones last
  int64_t tests = 0;                     // that were made
  int64_t replica_groups = 0;            // that were compared
  // Of the candidate's tensors, those that a replay did not reproduce although
  // the reference's did, and the largest difference of them.
  int64_t not_repeatable = 0;
  double largest_repeat = 0;
  // Modules that drew random numbers of which the other run drew others.
  std::set<std::string> unlike_draws;
};

// `measured`: of all of the run. Its facts, which are most of it, are gone
// afterwards: each goes as soon as its judgement is there, so that there is not
// memory for both. `risk`: of flagging a clean run. Fails if a reported norm
// cannot be read.
Result<JudgeOutcome> JudgeRun(const RunContext& context, double risk,
                              Measurements* measured);

// Adds a judgement for each tensor that the candidate lacks.
// REQUIRES: a reference.
void AddWhatOnlyTheReferenceHas(const RunContext& context,
                                std::vector<TensorJudgement>* tensors);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_JUDGE_RUN_H_
