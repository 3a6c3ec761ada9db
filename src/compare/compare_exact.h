// The general comparison of one block, in double: any dtype and scale, any
// value. The same bits on every instruction set.

#ifndef TTRACE_SRC_COMPARE_COMPARE_EXACT_H_
#define TTRACE_SRC_COMPARE_COMPARE_EXACT_H_

#include <cstddef>
#include <cstdint>

#include "src/compare/compare_kernel.h"
#include "src/compare/error_sums.h"

namespace ttrace {

// Compares `count` consecutive elements of both operands' first row, which are
// one logical block or a fragment of one. `element_scale`: CompareExtent.
// REQUIRES: count <= kCompareBlock.
void CompareBlockExact(const CompareOperand& ref, const CompareOperand& cand,
                       size_t count, double element_scale, ErrorSums* sums);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARE_EXACT_H_
