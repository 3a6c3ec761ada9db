#include "src/report/html/packed_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ttrace::packed_values_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(PackNumber, KeepsTwoDigitsFromTheSmallestToTheLargest) {
  EXPECT_EQ(PackNumber(0), 1);
  EXPECT_EQ(PackNumber(std::nan("")), 65534);
  EXPECT_EQ(PackNumber(kInfinity), 65535);
  EXPECT_EQ(PackNumber(1e-30), 2);
  EXPECT_EQ(PackNumber(1e30), 65533);
  for (const double value : {1e-19, 3.3e-7, 0.99, 1.0, 1.01, 65536.0, 1e19}) {
    const double back =
        std::pow(10, (PackNumber(value) - 2) * 40.0 / 65531 - 20);
    EXPECT_NEAR(back / value, 1, 0.001) << value;
  }
}

TEST(ProvenanceTemplate, LosesTheNumberOfItsOwnAlone) {
  EXPECT_EQ(ProvenanceTemplate("noise 1.3e-02 x 2 (3 noise legs)"),
            "noise {} x 2 (3 noise legs)");
  EXPECT_EQ(ProvenanceTemplate("equal bit for bit"), "equal bit for bit");
  EXPECT_EQ(ProvenanceTemplate("3 x 4"), "3 x 4");
  EXPECT_EQ(ProvenanceTemplate(" x "), " x ");
}

}  // namespace
}  // namespace ttrace::packed_values_test
