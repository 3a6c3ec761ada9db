#include "src/compare/held_values.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/testing/sharded_trace.h"

namespace ttrace::held_values_test {
namespace {

const Shape kShape = {6, 8};

std::vector<double> Counted() {
  std::vector<double> values(48);
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}

Layout Box(Segment rows, Segment cols) { return {{{{rows}, 6}, {{cols}, 8}}}; }

Sharding Cut(Placement placement) {
  Sharding out;
  out.mesh.dims = {{"tp", 2}};
  out.placements = {{"tp", placement}};
  return out;
}

TEST(ReadHeld, GivesWhatTheRankHasAndSaysWhatItHasNot) {
  const ShardedTrace trace(kShape, Counted(), Cut(Shard{1}));
  const Layout want = Box({2, 2}, {2, 4});  // columns 2 to 5 of rows 2 and 3
  const HeldValues first = OrDie(ReadHeld(trace.pieces(), 0, want));
  EXPECT_EQ(first.values, (std::vector<double>{18, 19, 0, 0, 26, 27, 0, 0}));
  EXPECT_EQ(first.held, (std::vector<char>{1, 1, 0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(first.missing, 4);
  const HeldValues both = OrDie(ReadHeld(trace.pieces(), kAnyRank, want));
  EXPECT_EQ(both.values, (std::vector<double>{18, 19, 20, 21, 26, 27, 28, 29}));
  EXPECT_EQ(both.missing, 0);
}

TEST(ReadHeld, FollowsTheOrderOfSegments) {
  const ShardedTrace trace(kShape, Counted(), Cut(StridedShard{1, 2}));
  Layout want = Box({0, 1}, {0, 2});
  want.dims[1].segments = {{4, 2}, {0, 2}};  // rank 0 stores 0, 1, 4, 5
  const HeldValues held = OrDie(ReadHeld(trace.pieces(), 0, want));
  EXPECT_EQ(held.values, (std::vector<double>{4, 5, 0, 1}));
}

TEST(ReadHeld, TermsAndOtherShapesAreNotHeld) {
  const ShardedTrace terms(kShape, Counted(), Cut(Partial{}));
  EXPECT_EQ(OrDie(ReadHeld(terms.pieces(), 0, Box({0, 6}, {0, 8}))).missing,
            48);
  const ShardedTrace whole(kShape, Counted(), Cut(Replicate{}));
  const Layout other = {{{{{0, 6}}, 6}, {{{0, 9}}, 9}}};
  EXPECT_EQ(OrDie(ReadHeld(whole.pieces(), 0, other)).missing, 54);
}

TEST(CutLayout, KeepsTheOrderAndTheLimit) {
  Layout layout = Box({0, 6}, {0, 8});
  layout.dims[0].segments = {{4, 2}, {0, 3}};
  for (const int64_t most : {1, 3, 8, 17, 40, 100}) {
    std::vector<size_t> joined;
    for (const Layout& part : CutLayout(layout, most)) {
      EXPECT_LE(part.local_count(), most);
      const std::vector<size_t> held = LogicalIndices(part);
      joined.insert(joined.end(), held.begin(), held.end());
    }
    EXPECT_EQ(joined, LogicalIndices(layout)) << most;
  }
  layout.dims[1].segments.clear();
  EXPECT_TRUE(CutLayout(layout, 4).empty());
}

TEST(CutLayout, AScalarIsOnePart) {
  EXPECT_EQ(CutLayout(Layout{}, 4).size(), 1u);
}

}  // namespace
}  // namespace ttrace::held_values_test
