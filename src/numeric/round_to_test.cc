#include "src/numeric/round_to.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace ttrace::round_to_test {
namespace {

TEST(RoundTo, IsWhatFloatDoes) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-150, 127);
  std::uniform_real_distribution<double> mantissa(-2, 2);
  for (int i = 0; i < 100000; ++i) {
    const double x =
        std::ldexp(mantissa(random), static_cast<int>(exponent(random)));
    EXPECT_EQ(RoundTo(x, DType::kF32),
              static_cast<double>(static_cast<float>(x)))
        << x;
  }
}

TEST(RoundTo, TiesGoToEvenAndWhatIsTooLargeIsInfinite) {
  EXPECT_EQ(RoundTo(1 + 0x1p-8, DType::kBF16), 1);
  EXPECT_EQ(RoundTo(1 + 0x3p-8, DType::kBF16), 1 + 0x1p-6);
  EXPECT_EQ(RoundTo(65519, DType::kF16), 65504);
  EXPECT_EQ(RoundTo(65520, DType::kF16),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(RoundTo(-1e39, DType::kF32),
            -std::numeric_limits<double>::infinity());
  EXPECT_EQ(RoundTo(0x1p-25, DType::kF16), 0);
  EXPECT_EQ(RoundTo(0x1.8p-25, DType::kF16), 0x1p-24);
  EXPECT_EQ(RoundTo(0.1, DType::kF64), 0.1);
  EXPECT_TRUE(std::isnan(
      RoundTo(std::numeric_limits<double>::quiet_NaN(), DType::kBF16)));
}

TEST(RangeOf, IsThatOfTheFormats) {
  using Float = std::numeric_limits<float>;
  EXPECT_EQ(RangeOf(DType::kF32).largest, static_cast<double>(Float::max()));
  EXPECT_EQ(RangeOf(DType::kF32).tiny, static_cast<double>(Float::min()));
  EXPECT_EQ(RangeOf(DType::kF32).step,
            static_cast<double>(Float::denorm_min()));
  EXPECT_EQ(RangeOf(DType::kF64).largest, std::numeric_limits<double>::max());
  EXPECT_EQ(RangeOf(DType::kF16).largest, 65504);
  EXPECT_EQ(RangeOf(DType::kF16).tiny, 0x1p-14);
  EXPECT_EQ(RangeOf(DType::kBF16).step, 0x1p-133);
}

}  // namespace
}  // namespace ttrace::round_to_test
