// CellGrid: a piece of a tensor, cut into boxes of some thousand elements.
//
// What differs between a rerun and the run it repeats is kept for each of these
// cells, so that it is known of any region that is made of them, although the
// regions that somebody will ask for are not known when it is measured. Shards
// are cut evenly, and mostly by powers of two, and so are cells: a shard of up
// to a sixteenth of a dimension is then whole cells in all usual cases.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_COMPARE_CELLS_CELL_GRID_H_
#define TTRACE_SRC_COMPARE_CELLS_CELL_GRID_H_

#include <cstdint>
#include <vector>

#include "ttrace/layout.h"

namespace ttrace {

struct CellGrid {
  Shape shape;                 // of the piece; no dimension is empty
  std::vector<int64_t> parts;  // cells along each dimension, at least 1

  int64_t cells() const;
  // First index of cell `k` of a dimension; of the one behind the last, the
  // dimension's size.
  int64_t Begin(size_t dim, int64_t k) const {
    // Split, so that no product overflows.
    const int64_t size = shape[dim];
    const int64_t n = parts[dim];
    return (size / n) * k + (size % n) * k / n;
  }
};

// A function of the shape alone. Cells have about kCellElements elements, and
// more where there would be over kMostCells of them.
// REQUIRES: no dimension of `shape` is empty.
CellGrid GridOf(const Shape& shape);

inline constexpr int64_t kCellElements = 1024;
inline constexpr int64_t kMostCells = 4096;

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_CELLS_CELL_GRID_H_
