// The elements that two layouts share, cut into tiles that fit a cache.
//
// Shared runs of every dimension make boxes; in both local tensors a box is a
// strided block. Dimensions that are contiguous on both sides are joined, so
// the common cases end up with one or two axes of long rows.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_COMPARE_TILE_H_
#define TTRACE_SRC_COMPARE_TILE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

struct Axis {
  int64_t size = 1;
  int64_t a_stride = 1;  // elements of a's local tensor
  int64_t b_stride = 1;
  int64_t logical_stride = 1;  // of the global tensor
};

struct Tile {
  std::vector<Axis> axes;  // never empty; the last has unit strides
  int64_t a_begin = 0;     // of the first element, in a's local tensor
  int64_t b_begin = 0;
  int64_t logical_begin = 0;

  int64_t count() const {
    int64_t n = 1;
    for (const Axis& axis : axes) n *= axis.size;
    return n;
  }
};

// Visits all elements that `a` and `b` share, in tiles of at most
// `tile_elements` elements, and stops at the first Error. Cuts of a long row
// fall on multiples of kCompareBlock in the global tensor if tiles are at least
// twice as large.
// Only elements that `within` holds as well; null: all.
// REQUIRES: equal global shapes, tile_elements > 0.
Status ForEachTile(const Layout& a, const Layout& b, int64_t tile_elements,
                   const std::function<Status(const Tile&)>& visit,
                   const Layout* within = nullptr);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_TILE_H_
