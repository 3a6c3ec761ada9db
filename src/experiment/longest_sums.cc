#include "src/experiment/longest_sums.h"

#include <algorithm>

namespace ttrace {
namespace {

// Every value downstream of a sum inherits its rounding, so the longest counts
// for all of them.
int64_t LongestRankSum(const Side& side) {
  const DeviceMesh& mesh = side.trace().mesh();
  int64_t longest = 1;
  for (const auto& [id, pieces] : side.real()) {
    const Record& any = *pieces.pieces.front();
    if (!Info(any.dtype).floating ||
        UnitRoundoff(any.dtype) <= UnitRoundoff(DType::kF32)) {
      continue;
    }
    int64_t ranks = 1;
    for (const std::string& name : any.reduced_over) {
      const int dim = mesh.Find(name);
      if (dim >= 0) ranks *= mesh.dims[static_cast<size_t>(dim)].size;
    }
    longest = std::max(longest, ranks);
  }
  return longest;
}

}  // namespace

LongestSums FindLongestSums(const Side& reference, const Side& candidate) {
  LongestSums out;
  for (const auto& [id, pieces] : reference.real()) {
    const Shape shape = pieces.global_shape();
    if (id.role == Role::kParam || id.role == Role::kGradReduced) {
      for (const int64_t n : shape) {
        out.activation = std::max(out.activation, n);
      }
    } else if (id.fqn.empty() && id.role == Role::kInput) {
      // Token ids are [batch, sequence]; floating inputs carry features last.
      const bool tokens_only = !Info(pieces.pieces.front()->dtype).floating;
      const size_t dims =
          tokens_only || shape.size() < 2 ? shape.size() : shape.size() - 1;
      int64_t tokens = 1;
      for (size_t d = 0; d < dims; ++d) {
        tokens *= shape[d];
        out.activation = std::max(out.activation, shape[d]);
      }
      out.gradient = std::max(out.gradient, tokens);
    }
  }
  out.gradient = std::max(out.gradient, out.activation);
  out.reference_ranks = LongestRankSum(reference);
  out.candidate_ranks = LongestRankSum(candidate);
  return out;
}

}  // namespace ttrace
