// Elements of any dtype as float or double.
//
// Single 8- and 16-bit floats are decoded by integer operations, so that the
// result does not depend on whether the process flushes denormals to zero.
// Runs of elements are widened on the best SIMD target; products and sums are
// rounded apart (no fused multiply-add), so that all targets give the same
// bits.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_NUMERIC_WIDEN_H_
#define TTRACE_SRC_NUMERIC_WIDEN_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ttrace/dtype.h"

namespace ttrace {

inline float WidenBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline float WidenF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  uint32_t fraction = bits & 0x3FFU;
  if (exponent == 31) {  // Inf, NaN
    return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) |
                                (fraction << 13));
  }
  if (fraction == 0) return std::bit_cast<float>(sign);
  // A denormal of half precision is a normal float: move its leading one into
  // the implicit place.
  const auto shift = static_cast<uint32_t>(std::countl_zero(fraction)) - 21;
  fraction = (fraction << shift) & 0x3FFU;
  return std::bit_cast<float>(sign | ((113 - shift) << 23) | (fraction << 13));
}

// bfloat16 holds every E4M3FN, and float16 every E5M2: the first has an
// exponent more to spare, the second only lacks fraction bits.
inline uint16_t F8E4M3FNAsBF16(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80U) << 8;
  const uint32_t size = bits & 0x7FU;
  if (size == 0x7F) return static_cast<uint16_t>(sign | 0x7FF0U);
  if (size >= 8) {  // the exponent's bias grows by 120
    return static_cast<uint16_t>(sign | ((size << 4) + (120U << 7)));
  }
  if (size == 0) return static_cast<uint16_t>(sign);
  // A denormal, size * 2^-9, moves its leading one into the implicit place.
  const auto shift = static_cast<uint32_t>(std::countl_zero(size)) - 28;
  const uint32_t fraction = (size << shift) & 7U;
  return static_cast<uint16_t>(sign | ((121 - shift) << 7) | (fraction << 4));
}
inline uint16_t F8E5M2AsF16(uint8_t bits) {
  return static_cast<uint16_t>(bits << 8);
}

template <typename T>
T LoadAs(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// One element. int64 beyond 2^53 is rounded; everything else is exact.
inline double WidenElement(DType dtype, const std::byte* p) {
  switch (dtype) {
    case DType::kBool:
      return LoadAs<uint8_t>(p) != 0 ? 1.0 : 0.0;
    case DType::kU8:
      return LoadAs<uint8_t>(p);
    case DType::kI8:
      return LoadAs<int8_t>(p);
    case DType::kI16:
      return LoadAs<int16_t>(p);
    case DType::kI32:
      return LoadAs<int32_t>(p);
    case DType::kI64:
      return static_cast<double>(LoadAs<int64_t>(p));
    case DType::kF16:
      return WidenF16(LoadAs<uint16_t>(p));
    case DType::kBF16:
      return WidenBF16(LoadAs<uint16_t>(p));
    case DType::kF32:
      return LoadAs<float>(p);
    case DType::kF64:
      return LoadAs<double>(p);
    case DType::kF8E4M3FN:
      return WidenBF16(F8E4M3FNAsBF16(LoadAs<uint8_t>(p)));
    case DType::kF8E5M2:
      return WidenF16(F8E5M2AsF16(LoadAs<uint8_t>(p)));
  }
  return 0;
}

// Of `count` consecutive elements, out[i] = element i. No alignment is required
// of `in`, and int64 is as above.
void Widen(DType dtype, const std::byte* in, size_t count, double* out);

// out[i] = element i * scale, rounded once.
void WidenScaled(DType dtype, const std::byte* in, size_t count, double scale,
                 double* out);

// sum[i] += element i * weight, each rounded once.
void AddWidened(DType dtype, const std::byte* in, size_t count, double weight,
                double* sum);

// The 16-bit format that holds every value of an 8-bit float; other dtypes are
// their own.
constexpr DType WiderF8(DType dtype) {
  if (dtype == DType::kF8E4M3FN) return DType::kBF16;
  return dtype == DType::kF8E5M2 ? DType::kF16 : dtype;
}

// Elements of an 8-bit float as those of WiderF8(dtype). NaN stays NaN.
// REQUIRES: `dtype` is kF8E4M3FN or kF8E5M2.
void WidenF8(DType dtype, const std::byte* in, size_t count, uint16_t* out);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_WIDEN_H_
