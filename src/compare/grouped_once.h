// GroupedOnce: the instances of pieces that several comparisons are made of,
// grouped by the first of them.
//
// What is measured of one tensor are comparisons of the same few lists of
// pieces. Of a tensor that hundreds of ranks hold, to put each piece in its
// place takes longer than to look at its checksum.
//
// Thread safety: one thread at a time.

#ifndef TTRACE_SRC_COMPARE_GROUPED_ONCE_H_
#define TTRACE_SRC_COMPARE_GROUPED_ONCE_H_

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/compare_options.h"
#include "src/compare/instances.h"
#include "src/compare/row_map.h"
#include "ttrace/status.h"

namespace ttrace {

using SharedGroups = std::shared_ptr<const std::vector<InstanceGroup>>;

class GroupedOnce {
 public:
  // As GroupInstances. `pieces` have to stay, unchanged.
  Result<SharedGroups> Of(const TensorPieces& pieces,
                          const CompareOptions& options);

 private:
  // All that GroupInstances looks at.
  using Key = std::tuple<const TensorPieces*, const RowMap*, double,
                         std::vector<std::string>>;
  std::vector<std::pair<Key, Result<SharedGroups>>> known_;  // few
};

// The same by options.grouped, or, if that is null, grouped for the caller.
Result<SharedGroups> GroupShared(const TensorPieces& pieces,
                                 const CompareOptions& options);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_GROUPED_ONCE_H_
