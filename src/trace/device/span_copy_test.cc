#include "src/trace/device/span_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/trace/strided_gather.h"

namespace ttrace::span_copy_test {
namespace {

std::vector<std::byte> GatherAll(const std::byte* data, const Shape& shape,
                                 std::span<const int64_t> strides,
                                 int itemsize) {
  StridedGather gather(data, shape, strides, itemsize);
  std::vector<std::byte> out;
  for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
    out.insert(out.end(), tile.begin(), tile.end());
  }
  return out;
}

// As an engine does it.
std::vector<std::byte> CopyRows(const std::byte* data, const SpanCopy& rows) {
  std::vector<std::byte> out(rows.bytes());
  for (size_t i = 0; i < rows.height; ++i) {
    std::memcpy(out.data() + i * rows.width, data + rows.first + i * rows.pitch,
                rows.width);
  }
  return out;
}

SpanCopy Plan(const Shape& shape, const std::vector<int64_t>& strides,
              int itemsize) {
  const auto plan = PlanSpanCopy(shape, strides, itemsize);
  EXPECT_TRUE(plan.has_value());
  return plan.value_or(SpanCopy{});
}

TEST(SpanCopy, TheCopyHasTheTensorWhateverItsStrides) {
  std::vector<std::byte> memory(64 * 1024);
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::byte>((i * 131) ^ (i >> 8));
  }
  const std::byte* middle = memory.data() + memory.size() / 2;
  std::mt19937 rng(5);
  const std::vector<int64_t> steps = {-40, -9, -3, -1, 0,  1,  2,  3,
                                      4,   7,  12, 20, 36, 60, 180};
  for (int i = 0; i < 20'000; ++i) {
    Shape shape;
    std::vector<int64_t> strides;
    for (size_t dims = rng() % 5; dims > 0; --dims) {
      shape.push_back(1 + static_cast<int64_t>(rng() % 5));
      strides.push_back(steps[rng() % steps.size()]);
    }
    const int itemsize = 1 << rng() % 4;
    const SpanCopy plan = Plan(shape, strides, itemsize);
    const std::vector<std::byte> copy = CopyRows(middle, plan);
    ASSERT_TRUE(
        GatherAll(copy.data() + plan.origin, shape, plan.strides, itemsize) ==
        GatherAll(middle, shape, strides, itemsize))
        << "case " << i;
  }
}

// Nor more: in any order of the dimensions.
TEST(SpanCopy, WhatHasNoGapsIsOneRow) {
  for (const auto& [shape, strides] :
       std::vector<std::pair<Shape, std::vector<int64_t>>>{
           {{2, 3, 4}, {12, 4, 1}},
           {{4, 2, 3}, {1, 12, 4}},
           {{4, 7, 2, 3}, {1, 0, 12, 4}},   // 7 times the same
           {{3, 1, 4, 2}, {4, 99, 1, 12}},  // a stride that is never taken
       }) {
    const SpanCopy plan = Plan(shape, strides, 4);
    EXPECT_EQ(plan.height, 1u);
    EXPECT_EQ(plan.bytes(), 96u);
  }
  EXPECT_EQ(Plan({}, {}, 4).bytes(), 4u) << "one number";
}

TEST(SpanCopy, OfASliceNothingElseIsCopied) {
  // The second of three parts of each of 5 x 2 rows of 12.
  const SpanCopy slice = Plan({5, 2, 4}, {24, 12, 1}, 2);
  EXPECT_EQ(slice.width, 8u);
  EXPECT_EQ(slice.pitch, 24u);
  EXPECT_EQ(slice.height, 10u);
  // Every third number.
  const SpanCopy sparse = Plan({100}, {3}, 4);
  EXPECT_EQ(sparse.width, 4u);
  EXPECT_EQ(sparse.height, 100u);
  // With gaps of two kinds, those of the outer one are left out.
  const SpanCopy both = Plan({10, 2, 4}, {1000, 12, 1}, 1);
  EXPECT_EQ(both.width, 16u);
  EXPECT_EQ(both.pitch, 1000u);
}

TEST(SpanCopy, APitchThatNoEngineTakesIsCopiedWithItsGaps) {
  const auto pitch = static_cast<int64_t>(kLargestPitch);
  EXPECT_EQ(Plan({2, 10}, {pitch, 1}, 1).height, 2u);
  const SpanCopy plan = Plan({2, 10}, {pitch + 1, 1}, 1);
  EXPECT_EQ(plan.height, 1u);
  EXPECT_EQ(plan.width, kLargestPitch + 11);
  EXPECT_EQ(plan.strides, (std::vector<int64_t>{pitch + 1, 1}));
}

TEST(SpanCopy, WhatLeavesMemoryIsRefused) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(PlanSpanCopy({2}, std::vector<int64_t>{most / 4}, 8));
  EXPECT_FALSE(PlanSpanCopy({3}, std::vector<int64_t>{most / 2}, 1) &&
               PlanSpanCopy({5}, std::vector<int64_t>{most / 2}, 1));
  EXPECT_FALSE(
      PlanSpanCopy({3, 3}, std::vector<int64_t>{most / 3, most / 3}, 1));
  EXPECT_FALSE(PlanSpanCopy(
      {2}, std::vector<int64_t>{std::numeric_limits<int64_t>::min()}, 8));
}

}  // namespace
}  // namespace ttrace::span_copy_test
