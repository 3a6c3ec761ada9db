#include "src/compare/row_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace ttrace::row_map_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

using Segments = std::vector<std::pair<int64_t, int64_t>>;

// Where `pieces` of the second dimension, of `size` indices, are read.
Segments Mapped(const RowMap& map, int64_t size, const Segments& pieces) {
  Layout layout;
  layout.dims = {DimLayout{{{0, 5}}, 5}, DimLayout{{}, size}};
  for (const auto& [begin, count] : pieces) {
    layout.dims[1].segments.push_back({begin, count});
  }
  const Status done = MapRows(map, 1, &layout);
  if (!done.ok()) return {};
  EXPECT_EQ(layout.dims[0], (DimLayout{{{0, 5}}, 5}));
  EXPECT_EQ(layout.dims[1].global_size, size);
  Segments out;
  for (const Segment& segment : layout.dims[1].segments) {
    out.emplace_back(segment.begin, segment.size);
  }
  return out;
}

const RowMap kTurned = {{2, 0, 1}};

TEST(MapRows, ARowIsReadWhereTheMapSays) {
  EXPECT_THAT(Mapped(kTurned, 3, {{0, 3}}),
              ElementsAre(Pair(2, 1), Pair(0, 2)));
  EXPECT_THAT(Mapped(kTurned, 3, {{1, 1}}), ElementsAre(Pair(0, 1)));
}

TEST(MapRows, SeveralIndicesOfARowStayTogether) {
  EXPECT_THAT(Mapped(kTurned, 12, {{0, 8}}),
              ElementsAre(Pair(8, 4), Pair(0, 4)));
}

TEST(MapRows, APieceMayBeginAndEndWithinARow) {
  EXPECT_THAT(Mapped(kTurned, 12, {{3, 3}}),
              ElementsAre(Pair(11, 1), Pair(0, 2)));
}

TEST(MapRows, PartsOfPaddedRowsMoveEachWithItsRow) {
  // The first three places of each row of four.
  EXPECT_THAT(Mapped(kTurned, 12, {{0, 3}, {4, 3}, {8, 3}}),
              ElementsAre(Pair(8, 3), Pair(0, 3), Pair(4, 3)));
}

TEST(MapRows, ADimensionThatIsNoMultipleOfTheRowsIsRefused) {
  EXPECT_THAT(Mapped(kTurned, 4, {{0, 4}}), IsEmpty());
  EXPECT_THAT(Mapped({}, 4, {{0, 4}}), IsEmpty());
}

TEST(MapRows, WhatIsNoPermutationIsRefused) {
  for (const RowMap& map :
       {RowMap{{0, 0, 1}}, RowMap{{0, 1, 3}}, RowMap{{0, 1, -1}}}) {
    EXPECT_THAT(Mapped(map, 3, {{0, 3}}), IsEmpty());
  }
}

}  // namespace
}  // namespace ttrace::row_map_test
