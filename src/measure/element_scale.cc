#include "src/measure/element_scale.h"

#include <algorithm>
#include <string>

#include "src/compare/compare_cells.h"
#include "src/compare/compare_summaries.h"
#include "src/measure/exact_values.h"
#include "src/measure/facts.h"

namespace ttrace {

bool MeasuresElements(const Side& reference, const LegPlan& plan,
                      const TensorId& id, const TensorPieces& pieces) {
  return !HasSummaries(pieces) && !IsExact(pieces) &&
         !HasNoTolerance(id.role) &&
         std::any_of(plan.noise_legs.begin(), plan.noise_legs.end(),
                     [&](const std::string& leg) {
                       return reference.FindSameValue(leg, id) != nullptr;
                     });
}

Result<ElementScale> MeasureElementScale(const TensorPieces& pieces) {
  const auto squares = SumOfSquares(pieces);
  if (squares.ok()) {
    return ElementScale{ElementScaleOf(squares->sum, squares->count),
                        squares->count};
  }
  if (!IsFact(squares.error())) return squares.error();
  return ElementScale{};
}

}  // namespace ttrace
