#include "src/diagnose/seen_collectives.h"

#include <algorithm>

namespace ttrace {

SeenCollectives::SeenCollectives(ReductionEvidence evidence)
    : evidence_(std::move(evidence)) {
  for (const Collective& c : evidence_.collectives->seen) {
    seen_[{c.rank, c.iteration}].push_back(&c);
  }
  for (const auto& [id, pieces] : *evidence_.tensors) {
    if (id.role != Role::kParam && id.role != Role::kParamUpdated) continue;
    for (const Record* piece : pieces.pieces) {
      parameter_ranks_[id.fqn].insert(piece->rank);
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

bool SeenCollectives::DimIsShared(const std::string& dim) const {
  const int at = evidence_.mesh->Find(dim);
  return at >= 0 && evidence_.mesh->dims[static_cast<size_t>(at)].size > 1;
}

bool SeenCollectives::Varies(const std::vector<int>& ranks,
                             const std::string& dim) const {
  const int at = evidence_.mesh->Find(dim);
  std::set<int> places;
  for (const int rank : ranks) {
    const auto found = evidence_.coordinates.find(rank);
    if (at >= 0 && found != evidence_.coordinates.end()) {
      places.insert(found->second[static_cast<size_t>(at)]);
    }
  }
  return places.size() > 1;
}

bool SeenCollectives::OnOneLine(int a, int b,
                                const std::set<std::string>& dims) const {
  const auto& mesh = evidence_.mesh->dims;
  const Coordinate& x = evidence_.coordinates.at(a);
  const auto found = evidence_.coordinates.find(b);
  if (found == evidence_.coordinates.end()) return false;
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
  for (const int64_t size : record.local_shape) n *= size;
  return n;
}

}  // namespace ttrace
