#include "src/region/box_words.h"

#include <gtest/gtest.h>

namespace ttrace::box_words_test {
namespace {

TEST(BoxWords, SaysTheIndicesOfEachDimension) {
  EXPECT_EQ(BoxWords({{{{{0, 8}}, 8}, {{{0, 4}, {12, 4}}, 16}}}),
            "[all, 0:4 12:16]");
  EXPECT_EQ(BoxWords({{{{}, 3}}}), "[none]");
  EXPECT_EQ(BoxWords({}), "[]");
}

TEST(BoxWords, OfManyRunsItSaysTheFirst) {
  DimLayout dim{{}, 40};
  for (int64_t i = 0; i < 10; ++i) dim.segments.push_back({4 * i, 1});
  EXPECT_EQ(BoxWords({{dim}}),
            "[0:1 4:5 8:9 12:13 16:17 20:21 24:25 28:29 ... (10 runs)]");
}

}  // namespace
}  // namespace ttrace::box_words_test
