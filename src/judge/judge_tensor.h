// From the facts of one tensor to its tests, and from these to its verdict.
// Both steps are pure: nothing is read, and nothing that is known is
// overwritten.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_JUDGE_JUDGE_TENSOR_H_
#define TTRACE_SRC_JUDGE_JUDGE_TENSOR_H_

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/experiment/leg_plan.h"
#include "src/experiment/rounding_of_tensors.h"
#include "src/experiment/side.h"
#include "src/judge/expectations.h"
#include "src/judge/isolated_verdict.h"
#include "src/judge/judgement.h"
#include "src/judge/routing_ties.h"
#include "src/judge/rule.h"
#include "src/judge/skipped_steps.h"
#include "src/judge/unlike_draws.h"
#include "src/judge/verdict_rules.h"
#include "src/measure/facts.h"
#include "src/measure/packed_facts.h"

namespace ttrace {

class TensorJudge {
 public:
  // `reference`: null if there is none, and then `plans` is empty.
  // `unequal_starts`: iterations that start from other weights (see
  // experiment/unequal_starts.h). Keeps references to all but these.
  TensorJudge(const Side* reference, const Side& candidate,
              const std::vector<LegPlan>& plans,
              const Expectations& expectations, const UnlikeDraws& draws,
              const SkippedSteps& skipped, std::set<int> unequal_starts);

  // Lets routing maps among `tensors`, which are those of the run in the order
  // of execution, be judged by their scores.
  void FindTies(const PackedFacts& tensors);

  TensorJudgement Judge(const TensorFacts& facts) const;

 private:
  LegJudgement JudgeLegOf(const TensorFacts& facts, const LegFacts& leg) const;
  void AddPieces(const LegFacts& leg, const LegErrors& whole,
                 LegJudgement* out) const;
  bool CopiesDiffer(const TensorFacts& facts, const ReplicaComparison& copies,
                    const std::vector<LegJudgement>& legs) const;
  Case CaseOf(const TensorFacts& facts,
              const std::vector<LegJudgement>& legs) const;
  void JudgeLegs(const TensorFacts& facts, TensorJudgement* out) const;
  // The verdict of the isolated legs.
  void ConcludeIsolatedLegs(const TensorFacts& facts,
                            TensorJudgement* out) const;

  bool has_reference_;
  int first_iteration_;  // that the candidate recorded
  bool weights_grafted_;
  bool data_grafted_;
  const std::vector<LegPlan>& plans_;
  const Expectations& expectations_;
  const UnlikeDraws& draws_;
  const SkippedSteps& skipped_;
  std::set<int> unequal_starts_;
  NotIsolatedIndex not_isolated_;
  std::set<std::pair<std::string, Role>> presumed_alike_;  // (fqn, role)
  bool models_beside_;
  std::optional<RoundingOfTensors> rounding_;
  RoutingTies ties_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_JUDGE_TENSOR_H_
