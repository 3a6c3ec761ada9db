#include "src/experiment/unequal_starts.h"

#include "src/compare/compare_tensor.h"
#include "src/experiment/iteration_range.h"

namespace ttrace {

Result<std::set<int>> UnequalStarts(
    const Side& reference, const Side& candidate,
    const std::optional<IterationRange>& iterations) {
  std::set<int> dirty;
  if (candidate.weights_grafted()) return dirty;
  for (const auto& [id, pieces] : candidate.real()) {
    if (id.role != Role::kParamUpdated || dirty.contains(id.iteration + 1)) {
      continue;
    }
    // What follows the last iteration that is judged decides nothing.
    if (iterations && id.iteration + 1 >= iterations->end) {
      continue;
    }
    const TensorPieces* expected = reference.Find("real", id);
    if (expected == nullptr ||
        expected->global_shape() != pieces.global_shape()) {
      continue;
    }
    const auto compared = CompareTensor(*expected, pieces);
    if (!compared.ok()) {
      // A tensor that says nothing, or whose bytes are damaged, says nothing
      // of what iterations start from either: what it was made into does.
      if (compared.error().code() == ErrorCode::kIo) return compared.error();
      continue;
    }
    if (!compared->total.bitwise_equal()) dirty.insert(id.iteration + 1);
  }
  // Later iterations inherit.
  if (!dirty.empty()) {
    for (const int i : candidate.Iterations()) {
      if (i > *dirty.begin()) dirty.insert(i);
    }
  }
  return dirty;
}

}  // namespace ttrace
