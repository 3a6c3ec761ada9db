#include "src/base/few.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

std::vector<std::string> All(const Few<std::string>& few) {
  return few.ToVector();
}

TEST(Few, HoldsAnyNumberInOrder) {
  Few<std::string> few;
  std::vector<std::string> expected;
  EXPECT_TRUE(few.empty());
  for (const std::string word : {"a", "b", "c", "d"}) {
    few.push_back(word);
    expected.push_back(word);
    EXPECT_EQ(All(few), expected);
    EXPECT_EQ(few.size(), expected.size());
    EXPECT_EQ(few.front(), "a");
    EXPECT_EQ(few.back(), word);
    EXPECT_EQ(All(Few<std::string>(expected)), expected);
  }
  EXPECT_EQ(few[2], "c");
}

TEST(Few, IsCopiedAndMovedWithItsElements) {
  const Few<std::string> one = {"a"};
  const Few<std::string> more = {"a", "b"};
  for (const Few<std::string>& few : {one, more, Few<std::string>()}) {
    Few<std::string> copy = few;
    EXPECT_TRUE(copy == few);
    const Few<std::string> moved = std::move(copy);
    EXPECT_TRUE(moved == few);
  }
}

TEST(Few, AreOrderedAsVectorsAre) {
  const std::vector<std::vector<int>> lists = {{},  {1},    {1, 2}, {1, 3},
                                               {2}, {2, 1}, {3}};
  for (const std::vector<int>& a : lists) {
    for (const std::vector<int>& b : lists) {
      EXPECT_EQ(Few<int>(a) < Few<int>(b), a < b);
      EXPECT_EQ(Few<int>(a) == Few<int>(b), a == b);
    }
  }
}

}  // namespace
}  // namespace ttrace
