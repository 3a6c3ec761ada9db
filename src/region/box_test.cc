#include "ttrace/box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace ttrace::box_test {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

int64_t CountOf(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// Flat indices of the elements of a box, in the order of the box.
std::vector<int64_t> FlatIndices(const Box& box) {
  std::vector<int64_t> indices = {0};
  for (const BoxDim& dim : box) {
    std::vector<int64_t> next;
    for (const int64_t outer : indices) {
      for (int64_t i = dim.begin; i < dim.begin + dim.size; ++i) {
        next.push_back(outer * dim.of + i);
      }
    }
    indices = std::move(next);
  }
  return indices;
}

// Whether the elements [begin, end) are the cross product of ranges, by the
// smallest and largest index of each dimension.
bool IsBox(const Shape& shape, int64_t begin, int64_t end) {
  Shape low(shape.size(), kHuge);
  Shape high(shape.size(), -1);
  for (int64_t at = begin; at < end; ++at) {
    int64_t rest = at;
    for (size_t d = shape.size(); d-- > 0;) {
      low[d] = std::min(low[d], rest % shape[d]);
      high[d] = std::max(high[d], rest % shape[d]);
      rest /= shape[d];
    }
  }
  int64_t volume = 1;
  for (size_t d = 0; d < shape.size(); ++d) volume *= high[d] - low[d] + 1;
  return volume == end - begin;
}

// The smallest number of consecutive boxes from `begin` to any end.
std::vector<size_t> FewestBoxes(const Shape& shape, int64_t begin) {
  const int64_t count = CountOf(shape);
  std::vector<size_t> fewest(static_cast<size_t>(count + 1), SIZE_MAX);
  fewest[static_cast<size_t>(begin)] = 0;
  for (int64_t from = begin; from < count; ++from) {
    for (int64_t to = from + 1; to <= count; ++to) {
      if (!IsBox(shape, from, to)) continue;
      size_t& best = fewest[static_cast<size_t>(to)];
      best = std::min(best, fewest[static_cast<size_t>(from)] + 1);
    }
  }
  return fewest;
}

TEST(BoxesOfRange, AreTheElementsInOrderAndAsFewAsCanBe) {
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{7}, Shape{3, 4}, Shape{4, 1}, Shape{1, 5},
        Shape{2, 3, 4}, Shape{3, 1, 3}, Shape{2, 1, 2, 3}, Shape{1, 1, 1},
        Shape{2, 2, 2, 2}}) {
    const int64_t count = CountOf(shape);
    const size_t most = std::max<size_t>(1, 2 * shape.size()) - 1;
    for (int64_t begin = 0; begin <= count; ++begin) {
      const std::vector<size_t> fewest = FewestBoxes(shape, begin);
      for (int64_t end = begin; end <= count; ++end) {
        const auto boxes = BoxesOfRange(shape, begin, end);
        ASSERT_TRUE(boxes.ok()) << boxes.error().message();
        std::vector<int64_t> all;
        for (const FlatBox& flat : *boxes) {
          ASSERT_EQ(flat.box.size(), shape.size());
          for (size_t d = 0; d < shape.size(); ++d) {
            EXPECT_EQ(flat.box[d].of, shape[d]);
          }
          const std::vector<int64_t> indices = FlatIndices(flat.box);
          ASSERT_FALSE(indices.empty());
          EXPECT_EQ(flat.offset, indices.front());
          all.insert(all.end(), indices.begin(), indices.end());
        }
        std::vector<int64_t> expected;
        for (int64_t at = begin; at < end; ++at) expected.push_back(at);
        EXPECT_EQ(all, expected);
        EXPECT_EQ(boxes->size(), fewest[static_cast<size_t>(end)]);
        EXPECT_LE(boxes->size(), begin == end ? 0 : std::max<size_t>(1, most));
      }
    }
  }
}

TEST(BoxesOfRange, NothingAndAScalar) {
  EXPECT_TRUE(BoxesOfRange({0, 5}, 0, 0)->empty());
  EXPECT_TRUE(BoxesOfRange({4}, 4, 4)->empty());
  EXPECT_EQ(*BoxesOfRange({}, 0, 1), (std::vector<FlatBox>{{0, {}}}));
}

TEST(BoxesOfRange, CostsNothingForHugeTensors) {
  const auto boxes = BoxesOfRange({kHuge / 8, 8}, 3, kHuge / 8 * 8 - 1);
  ASSERT_TRUE(boxes.ok());
  ASSERT_EQ(boxes->size(), 3u);
  EXPECT_EQ((*boxes)[1].box[0], (BoxDim{1, kHuge / 8 - 2, kHuge / 8}));
}

TEST(BoxesOfRange, OutsideTheTensorIsAnError) {
  const auto refused = [](const Shape& shape, int64_t begin, int64_t end) {
    const auto boxes = BoxesOfRange(shape, begin, end);
    return !boxes.ok() && boxes.error().code() == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({2, 3}, -1, 3));
  EXPECT_TRUE(refused({2, 3}, 0, 7));
  EXPECT_TRUE(refused({2, 3}, 4, 3));
  EXPECT_TRUE(refused({2, 3}, kHuge, kHuge));
  EXPECT_TRUE(refused({0, 3}, 0, 1));
  EXPECT_TRUE(refused({}, 0, 2));
  EXPECT_TRUE(refused({2, -3}, 0, 0));
  EXPECT_TRUE(refused({-2, -3}, 0, 6));
  EXPECT_TRUE(refused({kHuge, 2}, 0, 1));
}

// Columns 0, 1 | 4, 5 of six, in rows 2 to 4 of eight.
Layout SomeLayout() {
  Layout layout;
  layout.dims = {{{{2, 3}}, 8}, {{{0, 2}, {4, 2}}, 6}};
  return layout;
}

TEST(CutToBox, CountsLocalIndices) {
  const auto cut = CutToBox(SomeLayout(), {{1, 1, 3}, {1, 2, 4}});
  ASSERT_TRUE(cut.ok()) << cut.error().message();
  EXPECT_EQ(cut->dims[0].segments, (std::vector<Segment>{{3, 1}}));
  EXPECT_EQ(cut->dims[1].segments, (std::vector<Segment>{{1, 1}, {4, 1}}));
  EXPECT_EQ(cut->global_shape(), (Shape{8, 6}));
  EXPECT_EQ(cut->local_shape(), (Shape{1, 2}));

  EXPECT_EQ(*CutToBox(SomeLayout(), {{0, 3, 3}, {0, 4, 4}}), SomeLayout());
  EXPECT_EQ(CutToBox(SomeLayout(), {{3, 0, 3}, {0, 4, 4}})->local_count(), 0);
  EXPECT_TRUE(CutToBox({}, {}).ok());
}

TEST(CutToBox, ABoxThatDoesNotFitIsAnError) {
  for (const Box& box :
       {Box{}, Box{{0, 3, 3}}, Box{{0, 3, 3}, {0, 4, 4}, {0, 1, 1}},
        Box{{0, 3, 3}, {0, 4, 6}}, Box{{0, 3, 8}, {0, 4, 4}},
        Box{{-1, 3, 3}, {0, 4, 4}}, Box{{0, -1, 3}, {0, 4, 4}},
        Box{{3, -1, 3}, {0, 4, 4}}, Box{{1, 3, 3}, {0, 4, 4}},
        Box{{4, 0, 3}, {0, 4, 4}}, Box{{0, 4, 3}, {0, 4, 4}},
        Box{{0, 3, -3}, {0, 4, 4}}, Box{{kHuge, 1, 3}, {0, 4, 4}},
        Box{{1, kHuge, 3}, {0, 4, 4}}, Box{{kHuge, kHuge, kHuge}, {0, 4, 4}},
        Box{{0, 3, 3}, {std::numeric_limits<int64_t>::min(), kHuge, 4}}}) {
    const auto cut = CutToBox(SomeLayout(), box);
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(cut.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(ResolvePiece, ABoxLiesInWhatTheOtherPlacementsGive) {
  const DeviceMesh mesh = {{{"dp", 2}, {"tp", 2}}};
  // Wherever the word stands, it cuts nothing by itself.
  for (const PlacementMap& placements :
       {PlacementMap{{"dp", RaggedShard{}}, {"tp", Shard{1}}},
        PlacementMap{{"tp", Shard{1}}, {"dp", RaggedShard{}}}}) {
    const auto piece = ResolvePiece(mesh, {1, 1}, placements, {4, 6},
                                    std::nullopt, Box{{1, 2, 4}, {2, 1, 3}});
    ASSERT_TRUE(piece.ok()) << piece.error().message();
    EXPECT_EQ(piece->dims[0].segments, (std::vector<Segment>{{1, 2}}));
    EXPECT_EQ(piece->dims[1].segments, (std::vector<Segment>{{5, 1}}));
  }
}

TEST(ResolvePiece, ABoxMayNotCutTheRows) {
  const DeviceMesh mesh = {{{"dp", 2}}};
  const PlacementMap ragged = {{"dp", RaggedShard{}}};
  const BatchRows rows{1, 2, 4, 8};
  const auto piece =
      ResolvePiece(mesh, {0}, ragged, {6, 8}, rows, Box{{1, 2, 6}, {0, 4, 4}});
  ASSERT_TRUE(piece.ok()) << piece.error().message();
  EXPECT_EQ(piece->dims[0].segments, (std::vector<Segment>{{1, 2}}));
  EXPECT_EQ(piece->dims[1].segments, (std::vector<Segment>{{2, 4}}));
  const auto cut =
      ResolvePiece(mesh, {0}, ragged, {6, 8}, rows, Box{{1, 2, 6}, {0, 3, 4}});
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code(), ErrorCode::kInvalidArgument);
}

TEST(ResolvePiece, ABoxComesWithARaggedShardAndOnlyThen) {
  const DeviceMesh mesh = {{{"dp", 2}}};
  const Box all = {{0, 4, 4}};
  EXPECT_TRUE(
      ResolvePiece(mesh, {0}, {{"dp", RaggedShard{}}}, {4}, {}, all).ok());
  EXPECT_TRUE(ResolvePiece(mesh, {0}, {}, {4}, {}, {}).ok());
  for (const auto& refused :
       {ResolvePiece(mesh, {0}, {{"dp", RaggedShard{}}}, {4}, {}, {}),
        ResolvePiece(mesh, {0}, {}, {4}, {}, all),
        ResolvePiece(mesh, {0}, {{"dp", Replicate{}}}, {4}, {}, all),
        ResolvePiece(mesh, {0}, {{"mb", RaggedShard{}}}, {4}, {}, all),
        ResolvePiece(mesh, {0}, {{"ep", RaggedShard{}}}, {4}, {}, all)}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ttrace::box_test
