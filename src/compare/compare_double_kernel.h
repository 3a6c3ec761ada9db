// One block of doubles against doubles, on the best SIMD target.
//
// Lane l of 8 adds up elements l, l + 8, ... of the block, and the lanes are
// added one after the other, on every instruction set; products and sums are
// rounded apart. So all of them give the same bits.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_COMPARE_COMPARE_DOUBLE_KERNEL_H_
#define TTRACE_SRC_COMPARE_COMPARE_DOUBLE_KERNEL_H_

#include <cstddef>
#include <cstdint>

namespace ttrace {

inline constexpr size_t kDoubleLine = 8;

// As in ErrorSums. Means nothing but through finite() if a value was NaN or
// Inf.
struct DoubleBlock {
  double sq_err = 0;
  double err_ref = 0;
  double sq_ref = 0;
  double max_err = 0;
  double max_ref = 0;
  int64_t mismatched = 0;
  double max_elem = 0;
  double sq_elem = 0;

  // False if some value was not, or a square left the range of double.
  bool finite() const;
};

// `element_scale`: CompareExtent. No alignment is required.
DoubleBlock CompareDoubles(const double* ref, const double* cand, size_t count,
                           double element_scale);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARE_DOUBLE_KERNEL_H_
