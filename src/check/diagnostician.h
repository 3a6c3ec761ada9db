// Gathers what the rules of diagnosis may look at, and asks them.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_CHECK_DIAGNOSTICIAN_H_
#define TTRACE_SRC_CHECK_DIAGNOSTICIAN_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/check/stand_in_trace.h"
#include "src/diagnose/evidence.h"
#include "src/diagnose/reductions/reduction_hint.h"
#include "src/experiment/leg_plan.h"
#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"
#include "src/judge/judge_step.h"
#include "src/judge/judgement.h"
#include "src/localize/culprit.h"
#include "src/step/hyperparameters.h"

namespace ttrace {

class Diagnostician {
 public:
  // Keeps references to all of these but `settings`, which are the candidate's.
  // `reference` may be null.
  Diagnostician(const Side* reference, const Side& candidate,
                const std::vector<LegPlan>& plans, const RowAlignment& rows,
                const std::vector<TensorJudgement>& tensors,
                const ReplayedSteps& steps, const Hyperparameters& settings);

  // Sets the culprit's classes and hints, and corrects its stage by them:
  // copies that differ while their sum or mean is the reference are a missing
  // communication, wherever they are seen, and a partial sum that was reduced
  // is a fault of when.
  void Explain(Culprit* culprit) const;

  // Sets the culprit's pattern.
  void Picture(Culprit* culprit) const;

  // How often tensors were compared for these.
  int comparisons() const { return comparisons_; }

 private:
  // Pieces of the candidate with other pieces' stand-ins, by what they were.
  using StandIns = std::map<const TensorPieces*, TensorPieces>;
  const TensorPieces* WithStandIns(const TensorPieces* pieces,
                                   StandIns* made) const;
  Evidence Gather(const Culprit& culprit) const;
  // Fills the evidence's parts by comparing its tensor, which is done once,
  // however often the tensor is looked at.
  void CompareParts(const TensorId& id, Evidence* evidence) const;
  // A loss is one number, which a wrong factor of each rank may barely change:
  // what it sends into the model shows the factors.
  void ExplainByGradient(Culprit* loss) const;

  const Side* reference_;
  const Side& candidate_;
  const std::vector<LegPlan>& plans_;
  const RowAlignment& rows_;
  const ReplayedSteps& steps_;
  std::vector<double> weight_decays_;
  std::map<TensorId, const TensorJudgement*> by_id_;
  // Diverged tensors by role and iteration, in execution order.
  std::map<std::pair<Role, int>, std::vector<const TensorJudgement*>> affected_;
  std::set<int> unknown_outputs_;  // iterations: Evidence::outputs_are_known
  std::vector<const TensorJudgement*> unmatched_;
  ReductionHints reductions_;
  struct Parts {
    std::vector<InstanceStats> instances;
    std::vector<Layout> regions;
  };
  mutable std::map<TensorId, Parts> parts_;
  mutable int comparisons_ = 0;
  // By the trace that they stand in for.
  mutable std::map<const Trace*, std::unique_ptr<StandInTrace>> stand_ins_;
  int micro_batches_ = 1;
  int64_t global_batch_ = 0;
  int64_t sequence_length_ = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_DIAGNOSTICIAN_H_
