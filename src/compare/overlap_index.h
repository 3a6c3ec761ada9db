// Which of many regions of one tensor may overlap a given one, without looking
// at all of them: a tensor of hundreds of micro-batches has as many regions.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_COMPARE_OVERLAP_INDEX_H_
#define TTRACE_SRC_COMPARE_OVERLAP_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ttrace/layout.h"

namespace ttrace {

class OverlapIndex {
 public:
  // REQUIRES: all have one global shape.
  explicit OverlapIndex(const std::vector<const Layout*>& layouts);

  // Ascending places, in what the index was made of, of all layouts that
  // overlap `region`, and maybe of some that do not.
  // REQUIRES: `region` has the same global shape.
  std::vector<size_t> Near(const Layout& region) const;

 private:
  // What a layout reaches over in the dimension that tells most of them apart.
  struct Affects {
    int64_t begin = 0;
    int64_t end = 0;
    size_t place = 0;
  };
  Affects ReachOf(const Layout& layout) const;

  size_t dim_ = 0;
  int64_t longest_ = 0;
  std::vector<Affects> reaches_;  // by begin
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_OVERLAP_INDEX_H_
