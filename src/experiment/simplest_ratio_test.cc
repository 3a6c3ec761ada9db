#include "src/experiment/simplest_ratio.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ttrace::simplest_ratio_test {
namespace {

TEST(SimplestRatio, IsTheOneOfTheSmallestDenominatorThatIsNearEnough) {
  struct Case {
    double low, high;
    Scale ratio;
  };
  const Case cases[] = {
      {1.99, 2.01, {2, 1}},
      {0.49, 0.51, {1, 2}},
      {0.999, 1.001, {1, 1}},
      {2.0 / 371 * (1 - 1e-7), 2.0 / 371 * (1 + 1e-7), {2, 371}},
      {371.0 / 3 * (1 - 1e-7), 371.0 / 3 * (1 + 1e-7), {371, 3}},
      {0.33, 0.34, {1, 3}},
      {2.0, 2.0, {2, 1}},
  };
  for (const auto& [low, high, ratio] : cases) {
    const auto found = SimplestRatio(low, high, 1 << 20);
    ASSERT_TRUE(found) << low;
    EXPECT_EQ(*found, ratio) << low;
  }
}

TEST(SimplestRatio, ThereIsNoneOfWhatIsNoFactorOrTakesTooLargeNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(SimplestRatio(-1, 1, 100));
  EXPECT_FALSE(SimplestRatio(0, 1, 100));
  EXPECT_FALSE(SimplestRatio(2, 1, 100));
  EXPECT_FALSE(SimplestRatio(nan, 1, 100));
  EXPECT_FALSE(SimplestRatio(1, nan, 100));
  EXPECT_FALSE(SimplestRatio(1, std::numeric_limits<double>::infinity(), 0));
  EXPECT_FALSE(SimplestRatio(1e30, 2e30, 1 << 20));
  EXPECT_FALSE(SimplestRatio(1e-30, 2e-30, 1 << 20));
  EXPECT_FALSE(SimplestRatio(M_PI * (1 - 1e-15), M_PI * (1 + 1e-15), 1000));
}

}  // namespace
}  // namespace ttrace::simplest_ratio_test
