// From two sides to one TensorJudgement per logical tensor: everything is
// measured, and then judged.
//
// Thread safety: JudgeRun runs its own threads; the result does not depend on
// their number.

#ifndef TTRACE_SRC_JUDGE_JUDGE_RUN_H_
#define TTRACE_SRC_JUDGE_JUDGE_RUN_H_

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/experiment/iteration_range.h"
#include "src/experiment/leg_plan.h"
#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"
#include "src/judge/constants.h"
#include "src/judge/judge_step.h"
#include "src/judge/judgement.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

struct JudgeContext {
  const Side* reference = nullptr;  // null: no reference
  const Side* candidate = nullptr;
  std::vector<LegPlan> plans;  // of the two sides; empty without a reference
  RowAlignment rows;
  // That depend on the batch in a way that is not known (batch_readings.h).
  std::set<TensorId> batch_unknown;
  std::optional<IterationRange> iterations;  // to judge; nothing: all
  double risk = kRunRisk;                    // of flagging a clean run
  int threads = 0;
  std::function<void(int64_t, int64_t)> progress;

  bool Judges(int iteration) const {
    return !iterations || iterations->contains(iteration);
  }
};

struct JudgeOutcome {
  std::vector<TensorJudgement> tensors;  // by order; unmatched ones last
  int64_t tests = 0;                     // that were made
  int64_t bytes_compared = 0;            // of both sides, all legs
  int64_t replica_groups = 0;            // that were compared
  // Of the candidate's tensors, those that a replay did not reproduce although
  // the reference's did, and the largest difference of them.
  int64_t not_repeatable = 0;
  double largest_repeat = 0;
  // Modules that drew random numbers of which the other run drew others.
  std::set<std::string> unlike_draws;
  // Of iterations that are judged, on each side.
  ReplayedSteps steps;
  ReplayedSteps reference_steps;
};

Result<JudgeOutcome> JudgeRun(const JudgeContext& context);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_JUDGE_RUN_H_
