// From all that was measured of one tensor to its verdict.
//
// Thread safety: const after construction. What it is given must outlive it.

#ifndef TTRACE_SRC_JUDGE_TENSOR_JUDGE_H_
#define TTRACE_SRC_JUDGE_TENSOR_JUDGE_H_

#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/experiment/leg_plan.h"
#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"
#include "src/judge/isolated_verdict.h"
#include "src/judge/judgement.h"
#include "src/judge/leg_judge.h"

namespace ttrace {

class TensorJudge {
 public:
  // `reference`: null if there is none, and then `plans` is empty.
  // `dirty_iterations`: see DirtyIterations.
  TensorJudge(const Side* reference, const Side& candidate,
              const std::vector<LegPlan>& plans, const RowAlignment& rows,
              std::set<int> dirty_iterations);

  // `candidate`: the tensor in its real leg. Adds what it read to `bytes`.
  // Fails only if a file cannot be read.
  Status Judge(const TensorId& id, const TensorPieces& candidate,
               TensorJudgement* out, std::atomic<int64_t>* bytes) const;

 private:
  Result<std::optional<TensorJudgement::Repeat>> Repeat(
      const TensorId& id, const TensorPieces& real) const;
  Status JudgeByReference(const TensorId& id, const TensorPieces& candidate,
                          TensorJudgement* out,
                          std::atomic<int64_t>* bytes) const;
  Status JudgeLegs(const TensorId& id, TensorJudgement* out,
                   std::atomic<int64_t>* bytes) const;
  Status JudgeUpdate(const TensorId& id, TensorJudgement* out) const;
  void JudgeOwnParts(const TensorPieces& candidate, TensorJudgement* out) const;
  void Conclude(const TensorId& id, const TensorPieces& candidate,
                const TensorPieces& reference, TensorJudgement* out) const;
  bool ReplacedByGraft(const TensorId& id) const;
  size_t IsolatedLegs(const TensorJudgement& t) const;

  const Side* reference_;
  const Side& candidate_;
  const std::vector<LegPlan>& plans_;
  std::set<int> dirty_iterations_;
  NotIsolatedIndex not_isolated_;
  std::vector<std::string> isolated_legs_;
  std::optional<LegJudge> leg_judge_;  // nothing: no reference
};

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_TENSOR_JUDGE_H_
