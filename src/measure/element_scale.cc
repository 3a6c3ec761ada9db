#include "src/measure/element_scale.h"

#include <algorithm>
#include <string>

#include "src/compare/cells/compare_cells.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/measure/exact_values.h"
#include "src/measure/facts.h"

namespace ttrace {

bool MeasuresElements(const Side& reference, const LegPlan& plan,
                      const TensorId& id, const TensorPieces& pieces) {
  return !HasSummaries(pieces) && !IsExact(pieces) &&
         !HasNoTolerance(id.role) &&
         std::any_of(plan.noise_legs.begin(), plan.noise_legs.end(),
                     [&](const Leg& leg) {
                       return reference.FindSameValue(leg, id) != nullptr;
                     });
}

Result<ElementScale> MeasureElementScale(const Side& reference,
                                         const LegPlan& plan,
                                         const TensorId& id,
                                         const TensorPieces& pieces,
                                         RecordCache* cache) {
  for (const Leg& leg : plan.noise_legs) {
    const TensorPieces* noisy = reference.FindSameValue(leg, id);
    if (noisy == nullptr) continue;
    TTRACE_ASSIGN_OR_RETURN(const std::optional<double> known,
                            ElementScaleMeasured(pieces, *noisy));
    if (known) {
      return ElementScale{*known,
                          pieces.pieces.front().layout().global_count()};
    }
  }
  const auto squares = SumOfSquares(pieces, cache);
  if (squares.ok()) {
    return ElementScale{ElementScaleOf(squares->sum, squares->count),
                        squares->count};
  }
  if (!IsFact(squares.error())) return squares.error();
  return ElementScale{};
}

}  // namespace ttrace
