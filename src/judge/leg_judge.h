// One tensor in one leg: both sides compared, every error that bounds them
// measured, and the judgement of the leg.
//
// Thread safety: const after construction. What it is given must outlive it.

#ifndef TTRACE_SRC_JUDGE_LEG_JUDGE_H_
#define TTRACE_SRC_JUDGE_LEG_JUDGE_H_

#include <atomic>
#include <optional>
#include <string>

#include "src/experiment/leg_plan.h"
#include "src/experiment/longest_sums.h"
#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"
#include "src/judge/judgement.h"

namespace ttrace {

class LegJudge {
 public:
  LegJudge(const Side& reference, const Side& candidate,
           const RowAlignment& rows);

  struct Outcome {
    std::optional<LegJudgement> leg;  // nothing: this leg says nothing of it
    std::string trouble;  // why the comparison is not whole, or not possible
  };

  // `repeat_err`: how far a replay of the candidate is from its real leg.
  // Adds what it read to `bytes`. Fails only if a file cannot be read.
  Result<Outcome> Judge(const LegPlan& plan, const TensorId& id,
                        double repeat_err, std::atomic<int64_t>* bytes) const;

 private:
  const Side& reference_;
  const Side& candidate_;
  const RowAlignment& rows_;
  LongestSums sums_;
};

// For what has no tolerance: any difference is out of bound.
void RequireEqual(LegJudgement* leg);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_LEG_JUDGE_H_
