// The scale of a comparison's errors of single elements.
//
// Thread safety: pure functions of const inputs.

#ifndef TTRACE_SRC_MEASURE_ELEMENT_SCALE_H_
#define TTRACE_SRC_MEASURE_ELEMENT_SCALE_H_

#include <cstdint>

#include "src/align/catalog.h"
#include "src/compare/compare_options.h"
#include "src/experiment/leg_plan.h"
#include "src/experiment/side.h"
#include "ttrace/status.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// Whether errors of single elements are measured of `id` in `plan`, whose
// reference leg holds it as `pieces`. They are not if no noise leg bounds them,
// the value is judged exactly or not at all, or only summaries are there.
bool MeasuresElements(const Side& reference, const LegPlan& plan,
                      const TensorId& id, const TensorPieces& pieces);

// What errors of single elements are relative to, beside the element itself:
// the rms of the reference's tensor, from its sum of squares, or from where a
// noise leg was measured by it. 0 if it has none: all zero, not finite, in
// overlapping pieces. Fails as SumOfSquares, but for facts about the traces.
// `cache`: CompareOptions.
struct ElementScale {
  double value = 0;
  int64_t elements = 0;  // that it is of
};
Result<ElementScale> MeasureElementScale(const Side& reference,
                                         const LegPlan& plan,
                                         const TensorId& id,
                                         const TensorPieces& pieces,
                                         RecordCache* cache);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_ELEMENT_SCALE_H_
