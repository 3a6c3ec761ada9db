// CellComparer: two tensors of one layout against each other, cell by cell, in
// one pass over both in the order of their elements.
//
// The same elements give the same table, bit by bit, whatever tiles they come
// in as long as those are multiples of kCellTile elements: so a table made
// where the values were computed is that made from values that were stored.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_COMPARE_CELLS_CELL_COMPARER_H_
#define TTRACE_SRC_COMPARE_CELLS_CELL_COMPARER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/compare/cells/cell_grid.h"
#include "src/compare/cells/cell_kernel.h"
#include "src/compare/cells/cell_sums.h"
#include "ttrace/dtype.h"
#include "ttrace/layout.h"

namespace ttrace {

inline constexpr int64_t kCellTile = 1 << 15;

class CellComparer {
 public:
  // Whether tensors of `dtype` and `layout` are compared by cells: there are
  // fast paths for it, and enough elements for some cells.
  static bool Takes(DType dtype, const Layout& layout);

  // `element_scale`: c of ErrorStats::max_elem, as fp32; 0: not measured.
  // REQUIRES: Takes(dtype, layout)
  CellComparer(DType dtype, const Layout& layout, double element_scale);

  // The next `count` elements of both in row-major order of the local tensor,
  // packed. REQUIRES: together not more than the layout has, and all calls but
  // the last are of multiples of kCellTile.
  void Add(const std::byte* ref, const std::byte* cand, int64_t count);

  // REQUIRES: all elements were added. No call may follow.
  CellTable Take();

 private:
  // A dimension after those that no cell cuts were joined with their
  // neighbours, and where its walk is.
  struct Dim {
    int64_t size = 0;
    int64_t parts = 1;
    std::vector<int64_t> cell_begins;  // parts + 1
    std::vector<Segment> segments;     // of the global dimension
    int64_t logical_stride = 1;
    int64_t cell_stride = 1;
    // Of the walk.
    int64_t index = 0;
    int64_t cell = 0;
    size_t segment = 0;
    int64_t in_segment = 0;
    void Step();
  };

  void AddTile(const std::byte* ref, const std::byte* cand, int64_t count);
  // Fills runs_ with the next `count` elements.
  void PlanRuns(int64_t count);
  void PlanRow(int64_t* left);
  void EndBlock();
  uint32_t SlotOf(int64_t cell);
  void NextRow();
  bool Trustworthy(const CellLanes& lanes) const;
  void CloseBlocks(const std::vector<double>& sums);
  void AddExactly(const std::byte* ref, const std::byte* cand);

  DType dtype_;
  double element_scale_;
  std::vector<Dim> dims_;
  CellTable table_;

  // The walk: where the next element is.
  int64_t expected_ = -1;    // where the current block would go on
  int64_t row_cell_ = 0;     // of the outer dimensions
  int64_t row_logical_ = 0;  // row-major index in the global tensor

  // Of the current tile.
  std::vector<CellRun> runs_;
  std::vector<int64_t> run_cells_;  // parallel
  std::vector<CellLanes> lanes_;
  std::vector<int64_t> slot_cells_;
  std::vector<int32_t> slot_of_cell_;  // -1: none

  // Of the current block, which tiles may cut.
  alignas(64) float block_[kCellLanes] = {};
  double block_carry_ = 0;
  std::vector<int64_t> block_cells_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_CELLS_CELL_COMPARER_H_
