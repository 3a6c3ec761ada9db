// From two sides to Measurements: everything that is to be judged is measured,
// or a share of it.
//
// Thread safety: MeasureRun runs its own threads; what it gives does not depend
// on their number.

#ifndef TTRACE_SRC_MEASURE_MEASURE_RUN_H_
#define TTRACE_SRC_MEASURE_MEASURE_RUN_H_

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "src/experiment/batch_readings.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/leg_plan.h"
#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"
#include "src/measure/measure_progress.h"
#include "src/measure/measurements.h"
#include "src/measure/share.h"
#include "ttrace/status.h"

namespace ttrace {

struct RunContext {
  const Side* reference = nullptr;  // null: no reference
  const Side* candidate = nullptr;
  std::vector<LegPlan> plans;  // of the two sides; empty without a reference
  RowAlignment rows;
  BatchReadings batch;
  std::optional<IterationRange> iterations;  // to judge; nothing: all
  int threads = 0;                           // 0: as many as cores
  MeasureProgress* progress = nullptr;       // null: nobody looks

  bool Judges(int iteration) const {
    return !iterations || iterations->contains(iteration);
  }
};

using TensorEntry = std::pair<const TensorId, TensorPieces>;

// The candidate's tensors that are judged, in the order of execution.
std::vector<const TensorEntry*> InOrder(const RunContext& context);

// What `share` has to measure. Which that is follows from the sides alone: the
// shares of one `of` are disjoint, about equal in bytes and together all there
// is. Damaged bytes are part of what is measured. Fails if the operating system
// does not give bytes.
Result<Measurements> MeasureRun(const RunContext& context, const Share& share);

// Joins what the shares of one run gave, in any order. Fails with kCorrupt if
// something was not measured, or is not of this run.
Result<Measurements> JoinShares(const RunContext& context,
                                std::vector<Measurements> shares);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_MEASURE_RUN_H_
