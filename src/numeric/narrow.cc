#include "src/numeric/narrow.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "src/numeric/round_to.h"

namespace ttrace {
namespace {

uint16_t NarrowBF16(double x) {
  if (std::isnan(x)) return 0x7FC0;
  const auto f = static_cast<float>(RoundTo(x, 8, -126));
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(f) >> 16);
}

uint16_t NarrowF16(double x) {
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  if (std::isnan(x)) return 0x7E00;
  const double y = std::fabs(RoundTo(x, 11, -14));
  if (y > 65504) return static_cast<uint16_t>(sign | 0x7C00);
  if (y < 0x1p-14) {  // a denormal: a multiple of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(y * 0x1p24));
  }
  int exponent = 0;
  const double fraction = std::frexp(y, &exponent);  // in [1/2, 1)
  const auto bits = static_cast<uint16_t>((2 * fraction - 1) * 1024);
  return static_cast<uint16_t>(sign | ((exponent + 14) << 10) | bits);
}

uint8_t NarrowF8(DType dtype, double x) {
  const bool e4m3 = dtype == DType::kF8E4M3FN;
  const double y = RoundTo(x, dtype);
  const auto sign = static_cast<uint8_t>(std::signbit(y) ? 0x80 : 0);
  if (std::isnan(y)) return static_cast<uint8_t>(sign | (e4m3 ? 0x7F : 0x7E));
  if (std::isinf(y)) return static_cast<uint8_t>(sign | 0x7C);
  const FloatRange range = RangeOf(dtype);
  const double size = std::fabs(y);
  if (size < range.tiny) {  // a denormal
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(size / range.step));
  }
  int exponent = 0;
  const double fraction = 2 * std::frexp(size, &exponent) - 1;  // in [0, 1)
  const int bits = Info(dtype).precision - 1;
  const int bias = e4m3 ? 6 : 14;  // frexp's exponents are one larger
  return static_cast<uint8_t>(sign |
                              static_cast<uint8_t>((exponent + bias) << bits) |
                              static_cast<uint8_t>(std::ldexp(fraction, bits)));
}

template <typename T>
void Store(T value, std::byte* out) {
  std::memcpy(out, &value, sizeof(T));
}

template <typename T>
T NarrowInteger(double x) {
  if (std::isnan(x)) return 0;
  const double y = std::nearbyint(x);
  // The largest int64 is no double: comparing with it would admit 2^63.
  if (y >= std::ldexp(1.0, std::numeric_limits<T>::digits)) {
    return std::numeric_limits<T>::max();
  }
  const auto least = static_cast<double>(std::numeric_limits<T>::min());
  if (y <= least) return std::numeric_limits<T>::min();
  return static_cast<T>(y);
}

}  // namespace

void Narrow(DType dtype, double x, std::byte* out) {
  switch (dtype) {
    case DType::kBool:
      return Store<uint8_t>(x != 0 ? 1 : 0, out);
    case DType::kU8:
      return Store(NarrowInteger<uint8_t>(x), out);
    case DType::kI8:
      return Store(NarrowInteger<int8_t>(x), out);
    case DType::kI16:
      return Store(NarrowInteger<int16_t>(x), out);
    case DType::kI32:
      return Store(NarrowInteger<int32_t>(x), out);
    case DType::kI64:
      return Store(NarrowInteger<int64_t>(x), out);
    case DType::kF16:
      return Store(NarrowF16(x), out);
    case DType::kBF16:
      return Store(NarrowBF16(x), out);
    case DType::kF32:
      return Store(static_cast<float>(x), out);
    case DType::kF64:
      return Store(x, out);
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return Store(NarrowF8(dtype, x), out);
  }
}

}  // namespace ttrace
