#include "src/numeric/narrow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "src/numeric/widen.h"

namespace ttrace::narrow_test {
namespace {

constexpr DType kShort[] = {DType::kF16, DType::kBF16, DType::kF8E4M3FN,
                            DType::kF8E5M2};

uint32_t BitsOf(DType dtype, double x) {
  std::byte out[8] = {};
  Narrow(dtype, x, out);
  uint32_t bits = 0;
  std::memcpy(&bits, out, sizeof(bits));
  return bits;
}

double ValueOf(DType dtype, uint32_t bits) {
  std::byte in[8] = {};  // of the widest dtype
  std::memcpy(in, &bits, sizeof(bits));
  return WidenElement(dtype, in);
}

TEST(Narrow, EveryShortFloatComesBack) {
  for (const DType dtype : kShort) {
    for (uint32_t bits = 0; bits >> (8 * Info(dtype).itemsize) == 0; ++bits) {
      const double x = ValueOf(dtype, bits);
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(ValueOf(dtype, BitsOf(dtype, x))));
      } else {
        EXPECT_EQ(BitsOf(dtype, x), bits) << Info(dtype).torch_name;
      }
    }
  }
}

TEST(Narrow, BetweenTwoNumbersTheNearerAndInTheMiddleTheEvenOne) {
  for (const DType dtype : kShort) {
    const uint32_t codes = 1U << (8 * Info(dtype).itemsize - 1);
    for (uint32_t bits = 0; bits + 1 < codes; ++bits) {
      const double low = ValueOf(dtype, bits);
      const double high = ValueOf(dtype, bits + 1);
      if (!std::isfinite(low) || !std::isfinite(high)) break;
      const double middle = (low + high) / 2;
      EXPECT_EQ(BitsOf(dtype, middle), bits + (bits & 1));
      EXPECT_EQ(BitsOf(dtype, std::nextafter(middle, 0)), bits);
      EXPECT_EQ(BitsOf(dtype, std::nextafter(middle, high)), bits + 1);
      EXPECT_EQ(BitsOf(dtype, -middle), codes | (bits + (bits & 1)));
    }
  }
}

TEST(Narrow, BeyondTheRange) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(BitsOf(DType::kF8E4M3FN, 464), 0x7EU);
  EXPECT_EQ(BitsOf(DType::kF8E4M3FN, 464.1), 0x7FU);
  EXPECT_EQ(BitsOf(DType::kF8E4M3FN, -infinity), 0xFFU);
  EXPECT_EQ(BitsOf(DType::kF8E5M2, 61439), 0x7BU);
  EXPECT_EQ(BitsOf(DType::kF8E5M2, 61440), 0x7CU);
  EXPECT_EQ(BitsOf(DType::kF8E5M2, -infinity), 0xFCU);
  EXPECT_EQ(BitsOf(DType::kF16, 65520), 0x7C00U);
  EXPECT_EQ(BitsOf(DType::kBF16, -1e39), 0xFF80U);
}

}  // namespace
}  // namespace ttrace::narrow_test
