#include "src/base/hypot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttrace::hypot_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Hypot, IsStdHypotAtEveryScale) {
  for (int scale = -1073; scale <= 1022; ++scale) {
    const double a = std::ldexp(0.7, scale);
    for (const double share : {0.0, 1e-200, 1e-9, 0.3, 1.0}) {
      for (const double b : {a * share, -a * share}) {
        const double expected = std::hypot(a, b);
        // Units in the last place, of which the smallest numbers have few bits.
        const double ulp =
            std::max(std::nextafter(expected, kInfinity) - expected, 0x1p-1074);
        EXPECT_NEAR(Hypot(a, b), expected, 2 * ulp) << scale << ' ' << share;
        EXPECT_EQ(Hypot(b, a), Hypot(a, b)) << scale << ' ' << share;
      }
    }
  }
}

TEST(Hypot, OfNothingIsNothing) {
  EXPECT_EQ(Hypot(0, 0), 0);
  EXPECT_EQ(Hypot(-0.0, 3), 3);
}

TEST(Hypot, AnInfiniteLegMakesItInfinite) {
  EXPECT_EQ(Hypot(-kInfinity, kInfinity), kInfinity);
  EXPECT_EQ(Hypot(1, -kInfinity), kInfinity);
  EXPECT_EQ(Hypot(kInfinity, kNan), kInfinity);
}

TEST(Hypot, OfWhatIsNoNumberIsNone) {
  EXPECT_TRUE(std::isnan(Hypot(kNan, 1)));
  EXPECT_TRUE(std::isnan(Hypot(0, kNan)));
}

}  // namespace
}  // namespace ttrace::hypot_test
