// Reads the bytes of one tensor, of all legs of both sides, and says what they
// are: facts.h. No bound is known here.
//
// All planned pairs of legs are compared in one sweep (src/compare/sweep.h).
// What has to be known before, the scale of single elements' errors, is one of
// its own, over the reference's leg alone; and so are copies and replays that
// differ. What fits a range is read once for all of these.
//
// Thread safety: const after construction. What it is given must outlive it.

#ifndef TTRACE_SRC_MEASURE_MEASURE_TENSOR_H_
#define TTRACE_SRC_MEASURE_MEASURE_TENSOR_H_

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/experiment/leg_plan.h"
#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"
#include "src/measure/exact_sums.h"
#include "src/measure/facts.h"

namespace ttrace {

// Roles that an isolated leg says something about: what modules compute, and
// what arrives at them before it is replaced.
bool InIsolation(Role role);

struct ReadOnce;

class TensorMeasurer {
 public:
  // `reference`: null if there is none, and then `plans` is empty.
  TensorMeasurer(const Side* reference, const Side& candidate,
                 const std::vector<LegPlan>& plans, const RowAlignment& rows);

  // `candidate`: the tensor in its real leg. Adds what it read to `bytes`.
  // What cannot be compared is part of the facts, damaged bytes too. Fails if
  // the operating system does not give the bytes.
  Result<TensorFacts> Measure(const TensorId& id, const TensorPieces& candidate,
                              std::atomic<int64_t>* bytes) const;

 private:
  Status MeasureCandidate(const TensorId& id, const TensorPieces& candidate,
                          ReadOnce* once, TensorFacts* out,
                          std::atomic<int64_t>* bytes) const;
  Status MeasureAgainstReference(const TensorId& id,
                                 const TensorPieces& candidate, ReadOnce* once,
                                 TensorFacts* out,
                                 std::atomic<int64_t>* bytes) const;
  // Whose rows an item of the data holds; false if the capture did not say.
  bool FindOwnRows(const TensorId& id, const TensorPieces& candidate,
                   TensorFacts* out) const;
  Status MeasureLegs(const TensorId& id, ReadOnce* once, TensorFacts* out,
                     std::atomic<int64_t>* bytes) const;
  Status TakeLeg(const TensorPieces& candidate, const Status& status,
                 LegFacts facts, TensorFacts* out) const;

  const Side* reference_;
  const Side& candidate_;
  const std::vector<LegPlan>& plans_;
  const RowAlignment& rows_;
  std::set<std::string> lookups_;  // modules that are given integers alone
  // Iterations that ended on all ranks of both sides: many tensors ask it, and
  // each would ask every rank.
  std::set<int> completed_;
  // Of a reference that computes in low precision.
  std::unique_ptr<ExactSums> exact_sums_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_MEASURE_TENSOR_H_
