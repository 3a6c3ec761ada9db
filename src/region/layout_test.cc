#include "ttrace/layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace ttrace::layout_test {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

DeviceMesh Mesh(int dp, int cp, int tp) {
  return {{{"dp", dp}, {"cp", cp}, {"tp", tp}}};
}

std::vector<Segment> SegmentsOfRank(const PlacementMap& placements,
                                    int64_t size, int tp, int rank) {
  const Result<Layout> layout = ResolveLayout(Mesh(1, 1, tp), {0, 0, rank},
                                              placements, {size}, std::nullopt);
  EXPECT_TRUE(layout.ok()) << layout.error().message();
  return layout.ok() ? layout->dims[0].segments : std::vector<Segment>();
}

TEST(Layout, AnUnevenShardFollowsTorchChunk) {
  const PlacementMap shard = {{"tp", Shard{0}}};
  const std::vector<Segment> none;
  EXPECT_EQ(SegmentsOfRank(shard, 5, 4, 0), (std::vector<Segment>{{0, 2}}));
  EXPECT_EQ(SegmentsOfRank(shard, 5, 4, 1), (std::vector<Segment>{{2, 2}}));
  EXPECT_EQ(SegmentsOfRank(shard, 5, 4, 2), (std::vector<Segment>{{4, 1}}));
  EXPECT_EQ(SegmentsOfRank(shard, 5, 4, 3), none);
  EXPECT_EQ(SegmentsOfRank(shard, 0, 4, 0), none);
}

TEST(Layout, ZigzagPairsAnEarlyAndALateChunk) {
  const PlacementMap zigzag = {{"tp", ZigzagShard{0}}};
  EXPECT_EQ(SegmentsOfRank(zigzag, 8, 2, 0),
            (std::vector<Segment>{{0, 2}, {6, 2}}));
  // Chunks 1 and 2 are neighbours: one segment.
  EXPECT_EQ(SegmentsOfRank(zigzag, 8, 2, 1), (std::vector<Segment>{{2, 4}}));
}

TEST(Layout, StridedShardCutsEverySection) {
  const PlacementMap fused = {{"tp", StridedShard{0, 2}}};
  EXPECT_EQ(SegmentsOfRank(fused, 16, 4, 1),
            (std::vector<Segment>{{2, 2}, {10, 2}}));
  // Uneven inside the section: rank 1 of 2 gets the short piece of 2 + 1.
  EXPECT_EQ(SegmentsOfRank(fused, 6, 2, 1),
            (std::vector<Segment>{{2, 1}, {5, 1}}));
}

TEST(Layout, ALaterPlacementCutsWhatAnEarlierOneLeft) {
  const DeviceMesh mesh = Mesh(1, 2, 2);
  const PlacementMap placements = {{"cp", ZigzagShard{0}}, {"tp", Shard{0}}};
  // cp rank 0 holds 0..3 and 12..15 of 16; sequence parallelism halves this
  // list and not the chunks.
  const Result<Layout> first =
      ResolveLayout(mesh, {0, 0, 0}, placements, {16}, std::nullopt);
  const Result<Layout> second =
      ResolveLayout(mesh, {0, 0, 1}, placements, {16}, std::nullopt);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->dims[0].segments, (std::vector<Segment>{{0, 4}}));
  EXPECT_EQ(second->dims[0].segments, (std::vector<Segment>{{12, 4}}));
}

TEST(Layout, TheOrderOfThePlacementMapIsTheOrderOfCutting) {
  const DeviceMesh mesh = Mesh(1, 2, 2);
  const PlacementMap placements = {{"tp", Shard{0}}, {"cp", Shard{0}}};
  const Result<Layout> layout =
      ResolveLayout(mesh, {0, 1, 0}, placements, {8}, std::nullopt);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->dims[0].segments, (std::vector<Segment>{{2, 2}}));
}

TEST(Layout, AMicroBatchIsSomeRowsOfTheGlobalBatch) {
  const PlacementMap placements = {{"tp", Shard{0}}};
  const BatchRows rows{1, 6, 2, 8};
  const Result<Layout> layout =
      ResolveLayout(Mesh(1, 1, 2), {0, 0, 1}, placements, {4, 8, 3}, rows);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->local_shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(layout->global_shape(), (Shape{4, 8, 3}));
  EXPECT_EQ(layout->dims[1].segments, (std::vector<Segment>{{6, 2}}));
  EXPECT_EQ(layout->local_count(), 12);
  EXPECT_EQ(layout->global_count(), 96);

  const Result<Shape> global =
      GlobalShape(Mesh(1, 1, 2), {0, 0, 1}, placements, {2, 2, 3}, rows);
  ASSERT_TRUE(global.ok());
  EXPECT_EQ(*global, (Shape{4, 8, 3}));
}

TEST(Layout, AScalarHasOneElementAndNoDimensions) {
  const Result<Layout> layout = ResolveLayout(
      Mesh(2, 1, 1), {1, 0, 0}, {{"dp", Partial{}}, {"mb", Partial{}}}, {}, {});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->local_count(), 1);
}

void ExpectRefused(const DeviceMesh& mesh, const Coordinate& coordinate,
                   const PlacementMap& placements, const Shape& shape,
                   const std::optional<BatchRows>& rows, const char* what) {
  const Result<Layout> layout =
      ResolveLayout(mesh, coordinate, placements, shape, rows);
  ASSERT_FALSE(layout.ok()) << what;
  EXPECT_EQ(layout.error().code(), ErrorCode::kInvalidArgument) << what;
  // The inverse takes the same arguments, and must survive them.
  static_cast<void>(GlobalShape(mesh, coordinate, placements, shape, rows));
}

TEST(Layout, MeaninglessArgumentsAreErrors) {
  const DeviceMesh mesh = Mesh(1, 1, 4);
  const Coordinate at = {0, 0, 3};
  const auto none = std::nullopt;
  ExpectRefused(mesh, {0, 3}, {}, {8}, none, "short coordinate");
  ExpectRefused(mesh, {0, 0, 4}, {}, {8}, none, "coordinate too large");
  ExpectRefused(mesh, {0, 0, -1}, {}, {8}, none, "negative coordinate");
  ExpectRefused({{{"tp", 0}}}, {0}, {}, {8}, none, "empty mesh dimension");
  ExpectRefused({{{"tp", -4}}}, {0}, {}, {8}, none, "negative mesh dimension");
  ExpectRefused(mesh, at, {{"ep", Shard{0}}}, {8}, none, "unknown dimension");
  ExpectRefused(mesh, at, {{"mb", Shard{0}}}, {8}, none, "mb only sums");
  ExpectRefused(mesh, at, {{"tp", Shard{0}}, {"tp", Shard{0}}}, {8}, none,
                "named twice");
  ExpectRefused(mesh, at, {{"tp", Shard{1}}}, {8}, none, "no such dimension");
  ExpectRefused(mesh, at, {{"tp", Shard{-1}}}, {8}, none, "negative dimension");
  ExpectRefused(mesh, at, {{"tp", ZigzagShard{0}}}, {12}, none, "12 / 8");
  ExpectRefused(mesh, at, {{"tp", StridedShard{0, 3}}}, {8}, none, "8 / 3");
  ExpectRefused(mesh, at, {{"tp", StridedShard{0, 0}}}, {8}, none,
                "0 sections");
  ExpectRefused(mesh, at, {{"tp", StridedShard{0, -2}}}, {8}, none,
                "negative sections");
  ExpectRefused(mesh, at, {}, {-1}, none, "negative size");
  ExpectRefused(mesh, at, {}, Shape(65, 1), none, "too many dimensions");
}

TEST(Layout, RowsOutsideTheGlobalBatchAreErrors) {
  const DeviceMesh mesh = Mesh(1, 1, 2);
  const Coordinate at = {0, 0, 0};
  for (const BatchRows& rows :
       {BatchRows{-1, 0, 1, 8}, BatchRows{1, 0, 1, 8}, BatchRows{0, -1, 1, 8},
        BatchRows{0, 0, -1, 8}, BatchRows{0, 7, 2, 8}, BatchRows{0, 9, 0, 8},
        BatchRows{0, 0, 4, 7}, BatchRows{0, kHuge, kHuge, 8},
        BatchRows{0, 1, kHuge, kHuge}, BatchRows{0, 0, 1, -1}}) {
    ExpectRefused(mesh, at, {}, {8}, rows, "rows");
  }
  ExpectRefused(mesh, at, {{"tp", Shard{0}}}, {8}, BatchRows{0, 0, 4, 8},
                "the batch dimension is cut");
}

TEST(Layout, HugeNumbersAreErrorsAndCostNothing) {
  const DeviceMesh mesh = {{{"tp", std::numeric_limits<int>::max()}}};
  ExpectRefused(mesh, {1}, {}, {kHuge, 2}, {}, "overflow");
  ExpectRefused(mesh, {1}, {}, {0, kHuge, kHuge}, {}, "overflow beside a zero");
  const int many = 1 << 30;
  ExpectRefused(mesh, {0}, {{"tp", StridedShard{0, many}}}, {int64_t{1} << 62},
                {}, "a billion segments");
  // The largest dimension that there is can be cut.
  const Result<Layout> last =
      ResolveLayout(mesh, {std::numeric_limits<int>::max() - 1},
                    {{"tp", Shard{0}}}, {kHuge}, {});
  ASSERT_TRUE(last.ok());
  EXPECT_LE(last->local_count(), kHuge);
  const Result<Shape> global =
      GlobalShape(mesh, {0}, {{"tp", Shard{0}}}, {kHuge / 2}, {});
  ASSERT_FALSE(global.ok());
}

TEST(GlobalShape, RefusesALocalShapeThatNoEvenCutGives) {
  // A zigzag shard has an even number of rows on every rank.
  const Result<Shape> shape = GlobalShape(
      Mesh(1, 2, 1), {0, 0, 0}, {{"cp", ZigzagShard{0}}}, {3}, std::nullopt);
  ASSERT_FALSE(shape.ok());
  EXPECT_EQ(shape.error().code(), ErrorCode::kInvalidArgument);
  const Result<Shape> rows =
      GlobalShape(Mesh(1, 1, 1), {0, 0, 0}, {}, {3}, BatchRows{0, 0, 2, 8});
  ASSERT_FALSE(rows.ok()) << "two rows in a dimension of three";
}

}  // namespace
}  // namespace ttrace::layout_test
