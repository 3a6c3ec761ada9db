#include "src/diagnose/explained.h"

#include <gtest/gtest.h>

#include "src/diagnose/constants.h"

namespace ttrace::explained_test {
namespace {

TEST(IsEnough, NearlyAllThatIsWrongIsExplained) {
  EXPECT_TRUE(IsEnough({10, 10, 1000}));
  EXPECT_TRUE(IsEnough({10, 9, 1000}));
  EXPECT_FALSE(IsEnough({10, 8, 1000}));
  EXPECT_FALSE(IsEnough({0, 0, 1000}));
}

TEST(IsEnough, ChoosingWhatIsNotExplainedCostsBits) {
  EXPECT_TRUE(IsEnough({10, 10, kFewestBits + 10}));
  EXPECT_FALSE(IsEnough({10, 10, kFewestBits + 9}));
}

TEST(BitsOfMatch, FewValuesAndManyStrangersAreChance) {
  EXPECT_DOUBLE_EQ(BitsOfMatch(0.25, 8, 1), 16);
  EXPECT_DOUBLE_EQ(BitsOfMatch(0.25, 8, 256), 8);
  EXPECT_DOUBLE_EQ(BitsOfMatch(0.25, 8, int64_t{1} << 20), 0);
}

}  // namespace
}  // namespace ttrace::explained_test
