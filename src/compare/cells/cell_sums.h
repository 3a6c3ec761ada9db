// CellSums: what one cell of a piece shows of a difference, and a table of
// them as bytes.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_COMPARE_CELLS_CELL_SUMS_H_
#define TTRACE_SRC_COMPARE_CELLS_CELL_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ttrace/status.h"

namespace ttrace {

// The fields of ErrorStats, for a cell. `max_block` is of whole logical blocks
// (kCompareBlock), which may reach beyond the cell: cells are shorter than
// blocks, and a part of a block would show less than a candidate's block does.
struct CellSums {
  double err_err = 0;
  double err_ref = 0;
  double ref_ref = 0;
  double elem_elem = 0;
  double max_err = 0;
  double max_ref = 0;
  double max_elem = 0;
  double max_block = 0;
  uint32_t mismatched = 0;
  uint32_t nonfinite_ref = 0;
  uint32_t nonfinite_cand = 0;
  uint32_t nonfinite_differ = 0;
  bool operator==(const CellSums&) const = default;
};

struct CellTable {
  double element_scale = 0;     // CompareExtent, with which they were measured
  std::vector<CellSums> cells;  // of a CellGrid, the last dimension fastest
  bool operator==(const CellTable&) const = default;
};

// Little endian, of a size that is a function of the number of cells.
std::vector<std::byte> EncodeCells(const CellTable& table);
int64_t EncodedCellBytes(int64_t cells);
// Fails with kCorrupt if `bytes` are not those of `cells` cells.
Result<CellTable> DecodeCells(std::span<const std::byte> bytes, int64_t cells);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_CELLS_CELL_SUMS_H_
