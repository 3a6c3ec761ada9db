// Sums of differences in many short runs of memory, on the best SIMD target.
//
// A run is consecutive elements of one cell within one logical block. Lane j of
// a cell adds up elements j, j + 16, ... of each of its runs, on every
// instruction set; lanes are added in double by who calls.
//
// Thread safety: pure function of its arguments.

#ifndef TTRACE_SRC_COMPARE_CELLS_CELL_KERNEL_H_
#define TTRACE_SRC_COMPARE_CELLS_CELL_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ttrace/dtype.h"

namespace ttrace {

inline constexpr size_t kCellLanes = 16;

struct CellLanes {
  alignas(64) float err_err[kCellLanes];
  alignas(64) float err_ref[kCellLanes];
  alignas(64) float ref_ref[kCellLanes];
  alignas(64) float elem_elem[kCellLanes];
  alignas(64) float max_err[kCellLanes];
  alignas(64) float max_ref[kCellLanes];
  alignas(64) float max_elem[kCellLanes];
  uint64_t mismatched;
};

struct CellRun {
  uint32_t slot = 0;   // of `lanes`
  uint32_t count = 0;  // elements; they follow those of the run before
  bool ends_block = false;
};

// Two tensors' consecutive elements, of one dtype.
struct CellOperands {
  const std::byte* ref = nullptr;
  const std::byte* cand = nullptr;
  DType dtype = DType::kF32;
};

bool HasCellKernel(DType dtype);

// Adds all runs to the lanes of their slots. `block` holds what the current
// block has shown so far, in lanes; where a run ends a block, the sum of its
// squares is put behind `block_sums` and `block` starts anew.
// `element_scale`: c of ErrorStats::max_elem; 0: no errors of elements.
// REQUIRES: HasCellKernel(dtype); block_sums has room for all blocks that end.
void CompareRuns(const CellOperands& operands, std::span<const CellRun> runs,
                 float element_scale, CellLanes* lanes, float* block,
                 double* block_sums);

// The lanes' sum, by a fixed tree, in double.
double SumOfLanes(const float* lanes);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_CELLS_CELL_KERNEL_H_
