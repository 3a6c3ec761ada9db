// The SIMD part of widen.h: floats to double.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_NUMERIC_WIDEN_KERNEL_H_
#define TTRACE_SRC_NUMERIC_WIDEN_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "ttrace/dtype.h"

namespace ttrace {

// What becomes of element i.
enum class WidenTo {
  kValue,   // out[i] = x
  kScaled,  // out[i] = x * scale
  kSum,     // out[i] += x * scale
};

// REQUIRES: dtype is a float of 16, 32 or 64 bits.
void WidenFloats(WidenTo to, DType dtype, const std::byte* in, size_t count,
                 double scale, double* out);

// F8E4M3FNAsBF16 and F8E5M2AsF16 of `count` elements.
void WidenE4M3FN(const std::byte* in, size_t count, uint16_t* out);
void WidenE5M2(const std::byte* in, size_t count, uint16_t* out);

// float16 of element / kE4M3FNOverHalf, which holds it: a few integer
// operations for a vector of elements, and the instruction that widens float16
// normalises what is none. NaN stays NaN.
inline constexpr double kE4M3FNOverHalf = 256;
void HalvesOfE4M3FN(const std::byte* in, size_t count, uint16_t* out);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_WIDEN_KERNEL_H_
