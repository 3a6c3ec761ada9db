#include "src/compare/grouped_once.h"

namespace ttrace {
namespace {

Result<SharedGroups> Group(const TensorPieces& pieces,
                           const CompareOptions& options) {
  TTRACE_ASSIGN_OR_RETURN(std::vector<InstanceGroup> groups,
                          GroupInstances(pieces, options));
  return SharedGroups(
      std::make_shared<const std::vector<InstanceGroup>>(std::move(groups)));
}

}  // namespace

Result<SharedGroups> GroupedOnce::Of(const TensorPieces& pieces,
                                     const CompareOptions& options) {
  const Key key(&pieces, options.rows, options.extra_scale, options.sum_over);
  for (const auto& [of, groups] : known_) {
    if (of == key) return groups;
  }
  return known_.emplace_back(key, Group(pieces, options)).second;
}

Result<SharedGroups> GroupShared(const TensorPieces& pieces,
                                 const CompareOptions& options) {
  return options.grouped != nullptr ? options.grouped->Of(pieces, options)
                                    : Group(pieces, options);
}

}  // namespace ttrace
