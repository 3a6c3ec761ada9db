// Single-threaded comparison of memory with memory, on the best SIMD target.
//
// Elements are added up per block: 512 consecutive elements, aligned in the
// tensor's *logical* row-major index. Blocks are then added exactly
// (error_sums.h). So as long as cuts fall on multiples of a block, the result
// does not depend on how a tensor was cut, to the last bit; any other cut
// changes the sums by less than 1e-6 of themselves.
//
// Floats of 8 to 32 bits are compared in fp32: a block whose squares leave its
// range, and one with NaN or Inf, is done again in double. Everything else
// (fp64, integers, bool, scales that are no power of two) is compared in
// double. Results are the same bit by bit on all instruction sets that have a
// fused multiply-add; in double, on all.
//
// Thread safety: pure functions of their arguments.

#ifndef TTRACE_SRC_COMPARE_COMPARE_KERNEL_H_
#define TTRACE_SRC_COMPARE_COMPARE_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/compare/error_sums.h"
#include "ttrace/dtype.h"

namespace ttrace {

inline constexpr int64_t kCompareBlock = 512;

// Below this a block's sum of squares may have lost digits: squares of fp32
// under 2^-63 are denormal and under 2^-75 zero. 512 of them are far below
// 2^-24 of a sum of this size.
inline constexpr double kSmallestSafeSum = 0x1p-80;

// One side. No alignment or padding is required.
struct CompareOperand {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t row_stride = 0;  // elements
  double scale = 1;        // each element counts as element * scale
};

// What both sides have in common.
struct CompareExtent {
  int64_t rows = 1;
  int64_t cols = 0;             // consecutive elements of each row
  uint64_t logical_begin = 0;   // row-major index of the first element
  uint64_t logical_stride = 0;  // ... from one row to the next
  // c of ErrorStats::max_elem, in units of the scaled reference; finite. 0:
  // errors of single elements are not measured, which is faster.
  double element_scale = 0;
};

// Adds the statistics of cand against ref to `sums`.
void CompareRows(const CompareOperand& ref, const CompareOperand& cand,
                 const CompareExtent& extent, ErrorSums* sums);

// True if CompareRows has a SIMD path for the pair: then comparing from the
// tensors' own bytes is much faster than converting them first.
bool HasFastPath(const CompareOperand& ref, const CompareOperand& cand);

// The instruction set that CompareRows uses, as Highway calls it ("AVX3").
std::string_view CompareTargetName();

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARE_KERNEL_H_
