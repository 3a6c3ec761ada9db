#include "src/base/small_vector.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ttrace::small_vector_test {
namespace {

std::vector<std::string> All(const SmallVector<std::string>& few) {
  return few.ToVector();
}

TEST(SmallVector, HoldsAnyNumberInOrder) {
  SmallVector<std::string> few;
  std::vector<std::string> expected;
  EXPECT_TRUE(few.empty());
  for (const std::string word : {"a", "b", "c", "d"}) {
    few.push_back(word);
    expected.push_back(word);
    EXPECT_EQ(All(few), expected);
    EXPECT_EQ(few.size(), expected.size());
    EXPECT_EQ(few.front(), "a");
    EXPECT_EQ(few.back(), word);
    EXPECT_EQ(All(SmallVector<std::string>(expected)), expected);
  }
  EXPECT_EQ(few[2], "c");
}

TEST(SmallVector, IsCopiedAndMovedWithItsElements) {
  const SmallVector<std::string> one = {"a"};
  const SmallVector<std::string> more = {"a", "b"};
  for (const SmallVector<std::string>& few :
       {one, more, SmallVector<std::string>()}) {
    SmallVector<std::string> copy = few;
    EXPECT_TRUE(copy == few);
    const SmallVector<std::string> moved = std::move(copy);
    EXPECT_TRUE(moved == few);
  }
}

TEST(SmallVector, AreOrderedAsVectorsAre) {
  const std::vector<std::vector<int>> lists = {{},  {1},    {1, 2}, {1, 3},
                                               {2}, {2, 1}, {3}};
  for (const std::vector<int>& a : lists) {
    for (const std::vector<int>& b : lists) {
      EXPECT_EQ(SmallVector<int>(a) < SmallVector<int>(b), a < b);
      EXPECT_EQ(SmallVector<int>(a) == SmallVector<int>(b), a == b);
    }
  }
}

}  // namespace
}  // namespace ttrace::small_vector_test
