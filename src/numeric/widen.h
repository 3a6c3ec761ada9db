// Elements of any dtype as float or double.
//
// 16-bit floats are decoded by integer operations, so that the result does not
// depend on whether the process flushes denormals to zero.
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
  }
  return 0;
}

// `count` consecutive elements. No alignment is required.
void Widen(DType dtype, const std::byte* in, size_t count, double* out);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_WIDEN_H_
