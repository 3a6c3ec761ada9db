// The elements that two layouts share, cut into tiles that fit a cache.
//
// Shared runs of every dimension make boxes; in both local tensors a box is a
// strided block. Dimensions that are contiguous on both sides are joined, so
// the common cases end up with one or two axes of long rows.
//
// Thread safety: plain values and pure functions; a cursor is one thread's.

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

// All elements that `a` and `b` share, in tiles of at most `tile_elements`
// elements. Cuts of a long row fall on multiples of kCompareBlock in the global
// tensor if tiles are at least twice as large.
// Only elements that `within` holds as well; null: all.
//
// Tiles come in the order of the global tensor, but for those of a few rows:
// cursors over pieces of one tensor that are led to the same place of it, one
// after the other, read the same bytes at about the same time.
class TileCursor {
 public:
  // REQUIRES: equal global shapes, tile_elements > 0.
  TileCursor(const Layout& a, const Layout& b, int64_t tile_elements,
             const Layout* within = nullptr);

  bool done() const { return done_; }
  // REQUIRES: !done()
  const Tile& tile() const { return tile_; }
  void Next();

 private:
  // Of one axis of the box: where the tile is, and how far one reaches.
  struct Walk {
    int64_t at = 0;
    int64_t step = 1;
  };

  void SplitRows();
  void BeginBox();
  bool NextBox();
  void Place();

  std::vector<std::vector<SharedRun>> runs_;  // by dimension, none empty
  std::vector<size_t> chosen_;                // one of each: the box
  Shape a_strides_;
  Shape b_strides_;
  Shape logical_strides_;
  int64_t tile_elements_ = 1;
  Tile box_;
  std::vector<Walk> walks_;  // parallel to box_.axes
  Tile tile_;
  bool done_ = true;
};

// Visits these tiles, and stops at the first Error.
Status ForEachTile(const Layout& a, const Layout& b, int64_t tile_elements,
                   const std::function<Status(const Tile&)>& visit,
                   const Layout* within = nullptr);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_TILE_H_
