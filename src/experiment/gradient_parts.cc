#include "src/experiment/gradient_parts.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/compare/compare_options.h"
#include "src/compare/instances.h"

namespace ttrace {
namespace {

std::optional<GradientParts> PartsOf(const TensorPieces& pieces,
                                     const Side& side) {
  const auto groups = GroupInstances(pieces, CompareOptions());
  if (!groups.ok()) return std::nullopt;
  GradientParts out;
  for (const InstanceGroup& group : *groups) {
    double largest = 0;
    // Others of the group are its copies.
    for (const Term& term : group.instances.front().terms) {
      const TensorId& id = term.record.id();
      const GradientParts* noted = side.facts().FindGradientParts(
          term.record.rank(), id.iteration, id.fqn);
      if (noted == nullptr) return std::nullopt;
      out.squares += term.weight * term.weight * noted->squares;
      largest += term.weight * term.weight * noted->largest;
    }
    out.largest = std::max(out.largest, largest);
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
