#include "src/experiment/match_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

namespace ttrace::match_rows_test {
namespace {

using testing::ElementsAre;

TEST(MatchRows, EachRowIsWhereItsKeyIs) {
  EXPECT_THAT(MatchRows({10, 20, 30}, {30, 10, 20}), ElementsAre(2, 0, 1));
}

TEST(MatchRows, OfEqualRowsTheNextBehindTheLastComesFirst) {
  EXPECT_THAT(MatchRows({7, 7, 8, 7}, {7, 8, 7, 7}), ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(MatchRows({7, 7, 7}, {7, 7, 7}), ElementsAre(0, 1, 2));
}

TEST(MatchRows, WhatFollowsTellsEqualRowsApart) {
  // Two sentences that share words, the second first.
  const RowKeys theirs = {1, 2, 3, 2, 1, 4};
  const RowKeys own = {2, 1, 4, 1, 2, 3};
  EXPECT_THAT(MatchRows(theirs, own), ElementsAre(3, 4, 5, 0, 1, 2));
}

TEST(MatchRows, ARunIsLeftWhereAnotherGoesOnForLonger) {
  // Behind 1, 2 their 5 follows, and our 5 begins a sentence that is elsewhere.
  const RowKeys theirs = {1, 2, 5, 9, 5, 6, 7};
  const RowKeys own = {1, 2, 5, 6, 7, 5, 9};
  EXPECT_THAT(MatchRows(theirs, own), ElementsAre(0, 1, 4, 5, 6, 2, 3));
}

TEST(HoldTheSame, CountsHowOften) {
  EXPECT_TRUE(HoldTheSame({1, 2, 2}, {2, 1, 2}));
  EXPECT_FALSE(HoldTheSame({1, 2, 2}, {1, 1, 2}));
  EXPECT_FALSE(HoldTheSame({1, 2}, {1, 2, 2}));
}

TEST(Contains, CountsHowOften) {
  EXPECT_TRUE(Contains({1, 2, 2, 3}, {2, 3}));
  EXPECT_FALSE(Contains({1, 2, 3}, {2, 2}));
  EXPECT_FALSE(Contains({1, 2, 3}, {4}));
}

TEST(MatchRows, APartOfThemIsFoundAmongMore) {
  EXPECT_THAT(MatchRows({10, 20, 30, 20}, {20, 10}), ElementsAre(1, 0));
}

TEST(Joined, DistinguishesPairs) {
  const RowKeys pairs = Joined({1, 1, 2, 2}, {3, 4, 3, 4});
  EXPECT_EQ(CountDistinct(pairs), 4);
  EXPECT_EQ(Joined({1}, {2}), Joined({1}, {2}));
  EXPECT_NE(Joined({1}, {2}), Joined({2}, {1}));
}

RowDigests Of(const std::vector<int64_t>& values, size_t rows) {
  return DigestRows(std::as_bytes(std::span(values)), rows, sizeof(int64_t));
}

TEST(KeysWithoutPadding, RowsOfOtherLengthsAreKnownAgain) {
  const RowDigests theirs = Of({5, 6, 7, 0, 8, 9, 0, 0}, 2);
  const RowDigests own = Of({8, 9, 0, 5, 6, 7}, 2);
  const PaddedKeys right = KeysWithoutPadding(theirs, own, {});
  EXPECT_THAT(MatchRows(right.theirs, right.own), ElementsAre(1, 0));
  EXPECT_NE(right.own[0], right.own[1]);
}

TEST(KeysWithoutPadding, PaddingMayBeAtTheBeginning) {
  const RowDigests theirs = Of({0, 5, 6, 7, 0, 0, 8, 9}, 2);
  const RowDigests own = Of({5, 6, 7, 0, 8, 9}, 2);
  const PaddedKeys left = KeysWithoutPadding(theirs, own, {.at_begin = true});
  EXPECT_EQ(left.theirs, left.own);
  const PaddedKeys right = KeysWithoutPadding(theirs, own, {});
  EXPECT_FALSE(HoldTheSame(right.theirs, right.own));
}

TEST(KeysWithoutPadding, TheLastTokenMayBeLeftOutOfTheLongestRow) {
  const RowDigests theirs = Of({5, 6, 7, 0, 8, 9, 3, 4}, 2);
  const RowDigests own = Of({5, 6}, 1);
  const PaddedKeys alike = KeysWithoutPadding(theirs, own, {});
  EXPECT_FALSE(Contains(alike.theirs, alike.own));
  const PaddedKeys cut = KeysWithoutPadding(theirs, own, {.cut = true});
  EXPECT_THAT(MatchRows(cut.theirs, cut.own), ElementsAre(0));
  EXPECT_NE(cut.theirs[0], cut.theirs[1]);
}

}  // namespace
}  // namespace ttrace::match_rows_test
