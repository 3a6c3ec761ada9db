#include "src/experiment/unequal_starts.h"

#include "src/compare/compare_tensor.h"

namespace ttrace {

std::map<int, UpdatedParameters> UpdatesThatMatter(
    const Side& reference, const Side& candidate,
    const std::optional<IterationRange>& iterations) {
  std::map<int, UpdatedParameters> out;
  if (candidate.facts().weights_grafted) return out;
  for (const auto& [id, pieces] : candidate.real()) {
    // A run starts from what the last step before it left, and the very first
    // from what no step made.
    const bool is_start = id.role == Role::kParam && id.iteration > 0;
    if (id.role != Role::kParamUpdated && !is_start) continue;
    const int step = is_start ? id.iteration - 1 : id.iteration;
    // What follows the last iteration that is judged decides nothing.
    if (iterations && step + 1 >= iterations->end) continue;
    const TensorPieces* expected = reference.Find(kReal, id);
    if (expected == nullptr ||
        expected->global_shape() != pieces.global_shape()) {
      continue;
    }
    out[step].emplace_back(expected, &pieces);
  }
  return out;
}

Result<bool> AnyDiffers(const UpdatedParameters& parameters) {
  for (const auto& [expected, pieces] : parameters) {
    const auto compared = CompareTensor(*expected, *pieces);
    if (!compared.ok()) {
      // A tensor that says nothing, or whose bytes are damaged, says nothing
      // of what iterations start from either: what it was made into does.
      if (compared.error().code() == ErrorCode::kIo) return compared.error();
      continue;
    }
    if (!compared->total.bitwise_equal()) return true;
  }
  return false;
}

std::set<int> UnequalStarts(const Side& candidate,
                            const std::set<int>& unequal_updates) {
  std::set<int> out;
  for (const int iteration : unequal_updates) out.insert(iteration + 1);
  // Later iterations inherit.
  if (!out.empty()) {
    for (const int i : candidate.Iterations()) {
      if (i > *out.begin()) out.insert(i);
    }
  }
  return out;
}

}  // namespace ttrace
