#include "src/experiment/early_reductions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace::early_reductions_test {
namespace {

using testing::ElementsAre;

Note Said(int rank, const std::string& json) {
  return {rank, "reduced_early", json};
}

TEST(EarlyReductions, AreOfAParameterInAnIteration) {
  const EarlyReductions read = ReadEarlyReductions({
      Said(0, R"({"iteration":1,"parameters":["a","b"],"late":[2,4]})"),
      Said(3, R"({"iteration":1,"parameters":["a"],"late":[5]})"),
      {0, "notice", R"({"iteration":1,"parameters":["c"],"late":[2]})"},
  });
  EXPECT_EQ(read.malformed, 0);
  ASSERT_EQ(read.seen.size(), 2u);
  const EarlyReduction* a = read.Find(1, "a", {3, 7});
  ASSERT_NE(a, nullptr);
  EXPECT_THAT(a->late, ElementsAre(2, 4, 5));
  EXPECT_THAT(a->ranks, ElementsAre(0, 3));
  EXPECT_EQ(read.Find(0, "a", {0}), nullptr) << "another iteration";
  EXPECT_EQ(read.Find(1, "c", {0}), nullptr) << "another note";
  EXPECT_EQ(read.Find(1, "b", {3}), nullptr) << "on other ranks";
  EXPECT_NE(read.Find(1, "b", {0}), nullptr);
}

TEST(EarlyReductions, WhatCannotBeReadIsCounted) {
  const std::string names = R"("parameters":["a"],)";
  const EarlyReductions read = ReadEarlyReductions({
      Said(0, "[1]"),
      Said(0, "{" + names + R"("late":[1]})"),
      Said(0, "{" + names + R"("iteration":0})"),
      Said(0, "{" + names + R"("iteration":0,"late":1})"),
      Said(0, "{" + names + R"("iteration":0,"late":[]})"),
      Said(0, "{" + names + R"("iteration":-1,"late":[1]})"),
      Said(0, "{" + names + R"("iteration":0,"late":["1"]})"),
      Said(0, "{" + names + R"("iteration":0,"late":[4294967296]})"),
  });
  EXPECT_EQ(read.malformed, 8);
  EXPECT_TRUE(read.seen.empty());
  // Too many names to say.
  EXPECT_EQ(
      ReadEarlyReductions({Said(0, R"({"iteration":0,"late":[1]})")}).malformed,
      0);
}

}  // namespace
}  // namespace ttrace::early_reductions_test
