#include "src/diagnose/reductions/seen_collectives.h"

#include <algorithm>

namespace ttrace {

SeenCollectives::SeenCollectives(ReductionEvidence evidence)
    : evidence_(std::move(evidence)) {
  grids_.push_back({evidence_.mesh, evidence_.coordinates});
  grids_.insert(grids_.end(), evidence_.views.begin(), evidence_.views.end());
  for (const Collective& c : evidence_.collectives->seen) {
    seen_[{c.rank, c.iteration}].push_back(&c);
  }
  for (const auto& [id, pieces] : *evidence_.tensors) {
    if (id.role != Role::kParam && id.role != Role::kParamUpdated) continue;
    for (const Record& piece : pieces.pieces) {
      parameter_ranks_[id.fqn].insert(piece.rank());
    }
  }
}

const std::vector<const Collective*>& SeenCollectives::Of(int rank,
                                                          int iteration) const {
  static const auto& none = *new std::vector<const Collective*>();
  const auto found = seen_.find({rank, iteration});
  return found == seen_.end() ? none : found->second;
}

bool SeenCollectives::MayHave(int rank, const std::string& parameter) const {
  const auto ranks = parameter_ranks_.find(parameter);
  return ranks == parameter_ranks_.end() || ranks->second.contains(rank);
}

bool SeenCollectives::IsComplete(int iteration) const {
  size_t ranks = 1;
  for (const MeshDim& dim : evidence_.mesh->dims) {
    ranks *= static_cast<size_t>(dim.size);
  }
  if (evidence_.coordinates.size() != ranks) return false;
  return std::all_of(evidence_.coordinates.begin(), evidence_.coordinates.end(),
                     [&](const auto& rank) {
                       return rank.second.size() ==
                                  evidence_.mesh->dims.size() &&
                              evidence_.collectives->complete.contains(
                                  {rank.first, iteration});
                     });
}

const RankGrid& SeenCollectives::GridOf(
    const std::set<std::string>& dims) const {
  for (const RankGrid& grid : grids_) {
    if (std::all_of(dims.begin(), dims.end(), [&](const std::string& dim) {
          return grid.mesh->Find(dim) >= 0;
        })) {
      return grid;
    }
  }
  return grids_.front();
}

bool SeenCollectives::DimIsShared(const std::string& dim) const {
  const DeviceMesh& mesh = *GridOf({dim}).mesh;
  const int at = mesh.Find(dim);
  return at >= 0 && mesh.dims[static_cast<size_t>(at)].size > 1;
}

bool SeenCollectives::Varies(const std::vector<int>& ranks,
                             const std::string& dim) const {
  const RankGrid& grid = GridOf({dim});
  const int at = grid.mesh->Find(dim);
  std::set<int> places;
  for (const int rank : ranks) {
    const auto found = grid.coordinates.find(rank);
    if (at >= 0 && found != grid.coordinates.end()) {
      places.insert(found->second[static_cast<size_t>(at)]);
    }
  }
  return places.size() > 1;
}

bool SeenCollectives::OnOneLine(int a, int b,
                                const std::set<std::string>& dims) const {
  const RankGrid& grid = GridOf(dims);
  const auto& mesh = grid.mesh->dims;
  const Coordinate& x = grid.coordinates.at(a);
  const auto found = grid.coordinates.find(b);
  if (found == grid.coordinates.end()) return false;
  for (size_t i = 0; i < mesh.size(); ++i) {
    if (x[i] != found->second[i] && !dims.contains(mesh[i].name)) return false;
  }
  return true;
}

bool SeenCollectives::ModulesUse(const std::string& dim) const {
  return std::any_of(evidence_.collectives->seen.begin(),
                     evidence_.collectives->seen.end(),
                     [&](const Collective& c) {
                       return !c.fqn.empty() && Varies(c.members, dim);
                     });
}

int64_t Elements(const Record& record) {
  int64_t n = 1;
  for (const int64_t size : record.local_shape()) n *= size;
  return n;
}

}  // namespace ttrace
