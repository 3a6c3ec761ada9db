#include "src/experiment/mask_of_lengths.h"

#include <algorithm>
#include <cmath>

#include "src/compare/compare_tensor.h"
#include "ttrace/dtype.h"

namespace ttrace {
namespace {

// The logarithm, to base 2, of how often random masks may look like it.
constexpr double kChance = -20;

bool HasAtMostOneStep(const std::vector<double>& row) {
  int steps = 0;
  for (size_t i = 1; i < row.size(); ++i) steps += row[i] != row[i - 1];
  return steps <= 1;
}

}  // namespace

bool IsMaskOfLengths(const TensorPieces& pieces) {
  double chance = 0;
  // Each piece by itself: runs pad to other lengths.
  for (const Record& piece : pieces.pieces) {
    const auto& shape = piece.local_shape();
    if (Info(piece.dtype()).floating || shape.size() != 2) return false;
    TensorPieces alone = pieces;
    alone.pieces = {piece};
    Shape begin;
    for (const DimLayout& dim : piece.layout().dims) {
      if (dim.segments.size() != 1) return false;
      begin.push_back(dim.segments.front().begin);
    }
    for (int64_t r = 0; r < shape[0]; ++r) {
      const auto row = ReadBox(alone, {begin[0] + r, begin[1]}, {1, shape[1]});
      if (!row.ok() || !HasAtMostOneStep(*row)) return false;
      // Of 2^n masks of n places 2 n have at most one step.
      const auto places = static_cast<double>(shape[1]);
      chance += std::min(0.0, 1 + std::log2(places) - places);
    }
  }
  return chance <= kChance;
}

}  // namespace ttrace
