#include "src/experiment/gradient_parts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <variant>

namespace ttrace {
namespace {

// Where a piece lies: its grid and its coordinates there, 0 along dimensions of
// which all ranks hold the same.
struct Place {
  std::pair<int, Coordinate> of_term;
  std::pair<int, Coordinate> of_sum;  // 0 also along those that are summed over
};

Place PlaceOf(const Record& piece, const Trace& trace) {
  const DeviceMesh& mesh = trace.mesh(piece.grid());
  const Coordinate& here = trace.coordinate(piece.rank(), piece.grid());
  Coordinate term(here.size(), 0);
  Coordinate sum(here.size(), 0);
  for (const auto& [name, placement] : piece.placements()) {
    const int dim = mesh.Find(name);
    if (dim < 0 || std::holds_alternative<Replicate>(placement)) continue;
    const auto d = static_cast<size_t>(dim);
    term[d] = here[d];
    if (!std::holds_alternative<Partial>(placement)) sum[d] = here[d];
  }
  return {{piece.grid(), std::move(term)}, {piece.grid(), std::move(sum)}};
}

// What a piece counts as: its declared scale, and a share of a mean.
double WeightOf(const Record& piece, const DeviceMesh& mesh) {
  double weight = piece.scale().value();
  for (const auto& [name, placement] : piece.placements()) {
    const auto* partial = std::get_if<Partial>(&placement);
    const int dim = mesh.Find(name);
    if (partial != nullptr && partial->op == ReduceOp::kAvg && dim >= 0) {
      weight /= mesh.dims[static_cast<size_t>(dim)].size;
    }
  }
  return weight;
}

std::optional<GradientParts> PartsOf(const TensorPieces& pieces,
                                     const Side& side) {
  std::set<std::pair<int, Coordinate>> seen;
  std::map<std::pair<int, Coordinate>, double> largest;  // by place of the sum
  GradientParts out;
  for (const Record& piece : pieces.pieces) {
    Place place = PlaceOf(piece, side.trace());
    if (!seen.insert(std::move(place.of_term)).second) continue;
    const GradientParts* noted = side.facts().FindGradientParts(
        piece.rank(), piece.id().iteration, piece.id().fqn);
    if (noted == nullptr) return std::nullopt;
    const double weight = WeightOf(piece, side.trace().mesh(piece.grid()));
    out.squares += weight * weight * noted->squares;
    double& here = largest[std::move(place.of_sum)];
    here += weight * weight * noted->largest;
    out.largest = std::max(out.largest, here);
  }
  if (!std::isfinite(out.squares) || !(out.squares > 0)) return std::nullopt;
  return out;
}

}  // namespace

std::map<TensorId, GradientParts> PartsOfGradients(const Side& side) {
  std::map<TensorId, GradientParts> out;
  if (side.facts().gradient_parts.empty()) return out;
  for (const auto& [id, pieces] : side.real()) {
    if (id.role != Role::kGradLocal) continue;
    if (const auto parts = PartsOf(pieces, side)) out.emplace(id, *parts);
  }
  return out;
}

}  // namespace ttrace
