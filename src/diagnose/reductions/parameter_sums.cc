#include "src/diagnose/reductions/parameter_sums.h"

#include <algorithm>
#include <variant>
#include <vector>

namespace ttrace {
namespace {

bool IsForward(const Collective& c) {
  return c.phase == "forward" || c.phase == "recompute";
}

}  // namespace

std::map<std::string, SummedGradient> SummedGradients(
    const SeenCollectives& seen, int iteration) {
  std::map<std::string, SummedGradient> out;
  // Dimensions of local gradients only where nobody recorded reduced ones. A
  // rank of a distributed optimizer has a term also of what others own: every
  // rank with either holds one.
  for (const Role role : {Role::kGradReduced, Role::kGradLocal}) {
    std::map<std::string, SummedGradient> found;
    for (const auto& [id, pieces] : *seen.evidence().tensors) {
      if (id.role != role || id.iteration != iteration) continue;
      SummedGradient& gradient = found[id.fqn];
      for (const Record& piece : pieces.pieces) {
        // A stage without the tied weight contributes a zero term, and takes
        // part in no sum.
        if (!seen.MayHave(piece.rank(), id.fqn)) continue;
        gradient.holders[piece.rank()] = Elements(piece);
        for (const std::string& dim : piece.reduced_over()) {
          if (seen.DimIsShared(dim)) gradient.dims.insert(dim);
        }
        for (const auto& [dim, placement] : piece.placements()) {
          if (std::holds_alternative<Partial>(placement) &&
              seen.DimIsShared(dim)) {
            gradient.dims.insert(dim);
          }
        }
      }
    }
    for (const auto& [fqn, gradient] : found) {
      const auto known = out.find(fqn);
      if (known == out.end()) continue;
      known->second.holders.insert(gradient.holders.begin(),
                                   gradient.holders.end());
    }
    out.merge(found);
  }
  return out;
}

ParameterSum FindParameterSum(const SeenCollectives& seen,
                              const std::string& fqn,
                              const SummedGradient& gradient,
                              const std::string& dim, int iteration) {
  ParameterSum out;
  for (const auto& [rank, elements] : gradient.holders) {
    std::set<int> along_dim, along_all;  // other holders, and this one
    for (const auto& [other, unused] : gradient.holders) {
      if (seen.OnOneLine(rank, other, {dim})) along_dim.insert(other);
      if (seen.OnOneLine(rank, other, gradient.dims)) along_all.insert(other);
    }
    if (along_dim.size() < 2) continue;
    out.needed = true;
    std::map<std::vector<int>, int64_t> groups;  // that vary along dim
    std::set<int> reached;
    for (const Collective* c : seen.Of(rank, iteration)) {
      if (!c->Sums() || IsForward(*c) || c->phase == "optimizer") continue;
      const bool along = seen.Varies(c->members, dim);
      if (c->parameters.empty()) {
        // An activation's gradient is summed in the backward.
        out.unclear |=
            along && c->phase != "backward" && c->elements >= elements;
        continue;
      }
      if (std::find(c->parameters.begin(), c->parameters.end(), fqn) ==
          c->parameters.end()) {
        continue;
      }
      reached.insert(c->members.begin(), c->members.end());
      if (along || c->members.size() > 1) out.kind = c->kind;
      if (along) out.times = std::max(out.times, ++groups[c->members]);
    }
    const bool foreign = !std::includes(along_all.begin(), along_all.end(),
                                        reached.begin(), reached.end());
    // Two groups along one dimension are a sum in stages, and reach further
    // than one rank's own groups tell.
    const bool short_of = groups.size() == 1 &&
                          !std::includes(reached.begin(), reached.end(),
                                         along_dim.begin(), along_dim.end());
    if ((foreign || short_of) && out.over.empty()) {
      out.over = reached;
      out.terms_on = foreign ? along_all : along_dim;
    }
    if (groups.empty()) out.missing.insert(rank);
  }
  return out;
}

}  // namespace ttrace
