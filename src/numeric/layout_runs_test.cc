#include "src/numeric/layout_runs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

namespace ttrace::layout_runs_test {
namespace {

// Global 4 x 6, local rows 3, 0, 1 and columns 2..3 and 5.
Layout Cut() {
  Layout layout;
  layout.dims.push_back({{{3, 1}, {0, 2}}, 4});
  layout.dims.push_back({{{2, 2}, {5, 1}}, 6});
  return layout;
}

TEST(LayoutRuns, EveryElementIsWhereTheLayoutSays) {
  const Layout layout = Cut();
  const int64_t strides[] = {10, 3};
  std::map<uint64_t, int64_t> at;  // place in memory by logical index
  ForEachRun(layout, strides, [&](const LocalRun& run) {
    for (int64_t i = 0; i < run.count; ++i) {
      EXPECT_TRUE(at.emplace(run.logical + static_cast<uint64_t>(i),
                             run.at + i * run.stride)
                      .second);
    }
  });
  const std::map<uint64_t, int64_t> want = {{20, 0}, {21, 3}, {23, 6},
                                            {2, 10}, {3, 13}, {5, 16},
                                            {8, 20}, {9, 23}, {11, 26}};
  EXPECT_EQ(at, want);
}

TEST(LayoutRuns, WholeDimensionsAreOneRun) {
  Layout layout;
  layout.dims.push_back({{{1, 2}}, 4});
  layout.dims.push_back({{{0, 5}}, 5});
  layout.dims.push_back({{{0, 6}}, 6});
  const int64_t strides[] = {30, 6, 1};
  std::vector<LocalRun> runs;
  ForEachRun(layout, strides,
             [&](const LocalRun& run) { runs.push_back(run); });
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].logical, 30U);
  EXPECT_EQ(runs[0].count, 60);
  // A gap between the rows, and they are apart.
  const int64_t padded[] = {35, 7, 1};
  runs.clear();
  ForEachRun(layout, padded, [&](const LocalRun& run) { runs.push_back(run); });
  EXPECT_EQ(runs.size(), 10U);
}

TEST(LayoutRuns, AScalarIsOneElementAndAnEmptyPieceNone) {
  int visits = 0;
  const auto count = [&](const LocalRun& run) {
    EXPECT_EQ(run.count, 1);
    ++visits;
  };
  ForEachRun(Layout{}, {}, count);
  EXPECT_EQ(visits, 1);
  Layout empty;
  empty.dims.push_back({{}, 4});
  const int64_t strides[] = {1};
  ForEachRun(empty, strides, count);
  EXPECT_EQ(visits, 1);
}

// More than is gathered at once, of a column, backwards.
TEST(LayoutRuns, ElementsApartAreGathered) {
  constexpr int64_t kCount = 5000;
  std::vector<int32_t> memory(2 * kCount);
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<int32_t>(i);
  }
  Layout layout;
  layout.dims.push_back({{{7, kCount}}, 6000});
  const int64_t strides[] = {-2};
  int64_t seen = 0;
  const Status done = ForEachPackedRun(
      {reinterpret_cast<const std::byte*>(memory.data() + memory.size() - 2),
       DType::kI32, strides, layout},
      [&](uint64_t logical, const std::byte* elements, size_t count) {
        for (size_t i = 0; i < count; ++i) {
          int32_t x;
          std::memcpy(&x, elements + 4 * i, 4);
          const auto index = static_cast<int64_t>(logical + i) - 7;
          EXPECT_EQ(x, 2 * (kCount - 1 - index));
          ++seen;
        }
      });
  EXPECT_TRUE(done.ok());
  EXPECT_EQ(seen, kCount);
}

TEST(LayoutRuns, AStrideForEachDimensionIsAskedFor) {
  const Layout layout = Cut();
  const int64_t strides[] = {1};
  const Status done =
      ForEachPackedRun({nullptr, DType::kF32, strides, layout},
                       [](uint64_t, const std::byte*, size_t) { FAIL(); });
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ttrace::layout_runs_test
