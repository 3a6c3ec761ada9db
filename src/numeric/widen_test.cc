#include "src/numeric/widen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace ttrace {
namespace {

// The definition of binary16, by arithmetic.
double HalfByDefinition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Widen, EveryHalfIsItsDefinition) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double want = HalfByDefinition(half);
    const auto got = static_cast<double>(WidenF16(half));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      EXPECT_EQ(got, want) << bits;
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << bits;
    }
  }
}

TEST(Widen, BF16IsTheUpperHalfOfAFloat) {
  EXPECT_EQ(WidenBF16(0x3F80), 1.0F);
  EXPECT_EQ(WidenBF16(0xC049), -3.140625F);
  EXPECT_EQ(WidenBF16(0x0001), 0x1p-133F);
  EXPECT_TRUE(std::isinf(WidenBF16(0x7F80)));
}

template <typename T>
void ExpectWidens(DType dtype, const std::vector<T>& values) {
  std::vector<double> out(values.size());
  Widen(dtype, reinterpret_cast<const std::byte*>(values.data()), values.size(),
        out.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(out[i], static_cast<double>(values[i]));
  }
}

TEST(Widen, NumbersOfOtherDTypesKeepTheirValue) {
  ExpectWidens<uint8_t>(DType::kU8, {0, 1, 255});
  ExpectWidens<uint8_t>(DType::kBool, {0, 1});
  ExpectWidens<int8_t>(DType::kI8, {-128, 0, 127});
  ExpectWidens<int16_t>(DType::kI16, {-32768, 3, 32767});
  ExpectWidens<int32_t>(DType::kI32, {INT32_MIN, -1, INT32_MAX});
  ExpectWidens<int64_t>(DType::kI64, {-(int64_t{1} << 53), 7});
  ExpectWidens<float>(DType::kF32, {1e-45F, -3.5F});
  ExpectWidens<double>(DType::kF64, {1e-300, -3.5});
}

}  // namespace
}  // namespace ttrace
