#include "src/numeric/round_to.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttrace {

int MinExponent(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3FN:
      return -6;
    case DType::kF8E5M2:
    case DType::kF16:
      return -14;
    case DType::kF64:
      return -1022;
    default:
      return -126;
  }
}

double RoundTo(double x, int precision, int min_exponent) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| = m * 2^exponent, m in [1/2, 1)
  const int unit = std::max(exponent - precision, min_exponent - precision + 1);
  return std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
}

double RoundTo(double x, DType dtype) {
  if (!Info(dtype).floating || dtype == DType::kF64) return x;
  const double y = RoundTo(x, Info(dtype).precision, MinExponent(dtype));
  if (std::fabs(y) <= RangeOf(dtype).largest || std::isnan(y)) return y;
  if (dtype == DType::kF8E4M3FN) return std::copysign(std::nan(""), y);
  return std::copysign(std::numeric_limits<double>::infinity(), y);
}

FloatRange RangeOf(DType dtype) {
  const int precision = Info(dtype).precision;
  const int least = MinExponent(dtype);
  const double below_two = 2 - std::ldexp(1.0, 1 - precision);
  // Its largest exponent is that of numbers, too; only the last code is NaN.
  if (dtype == DType::kF8E4M3FN) return {0x1p-6, 0x1p-9, 448};
  return {std::ldexp(1.0, least), std::ldexp(1.0, least - precision + 1),
          std::ldexp(below_two, 1 - least)};
}

}  // namespace ttrace
