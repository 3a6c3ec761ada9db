#include "src/compare/overlap_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace ttrace::overlap_index_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Layout Box(const std::vector<std::vector<Segment>>& dims) {
  Layout out;
  for (const auto& segments : dims) out.dims.push_back({segments, 100});
  return out;
}

std::vector<const Layout*> Pointers(const std::vector<Layout>& layouts) {
  std::vector<const Layout*> out;
  for (const Layout& layout : layouts) out.push_back(&layout);
  return out;
}

bool Overlap(const DimLayout& a, const DimLayout& b) {
  for (const Segment& x : a.segments) {
    for (const Segment& y : b.segments) {
      if (x.begin < y.begin + y.size && y.begin < x.begin + x.size) return true;
    }
  }
  return false;
}

bool Overlap(const Layout& a, const Layout& b) {
  for (size_t d = 0; d < a.dims.size(); ++d) {
    if (!Overlap(a.dims[d], b.dims[d])) return false;
  }
  return true;
}

TEST(OverlapIndex, MicroBatchesAreToldApartByTheirRows) {
  std::vector<Layout> rows;
  for (int64_t i = 0; i < 10; ++i) rows.push_back(Box({{{0, 100}}, {{i, 1}}}));
  const OverlapIndex index(Pointers(rows));
  EXPECT_THAT(index.Near(Box({{{0, 100}}, {{3, 2}}})), ElementsAre(3, 4));
  EXPECT_THAT(index.Near(Box({{{0, 100}}, {{20, 1}}})), IsEmpty());
  EXPECT_EQ(index.Near(Box({{{0, 100}}, {{0, 100}}})).size(), 10u);
}

TEST(OverlapIndex, ScalarsAndNothing) {
  const std::vector<Layout> scalars(3);
  EXPECT_THAT(OverlapIndex(Pointers(scalars)).Near(Layout{}),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(OverlapIndex({}).Near(Layout{}), IsEmpty());
}

// Also with segments out of order, as those of zigzag context parallelism.
TEST(OverlapIndex, MissesNoneOfAnyRegions) {
  std::mt19937 rng(1);
  const auto random = [&] {
    std::vector<std::vector<Segment>> dims(2);
    for (auto& dim : dims) {
      for (unsigned i = 0; i <= rng() % 2; ++i) {
        const auto begin = static_cast<int64_t>(rng() % 90);
        dim.push_back({begin, 1 + static_cast<int64_t>(rng() % 10)});
      }
    }
    return Box(dims);
  };
  std::vector<Layout> layouts;
  for (int i = 0; i < 200; ++i) layouts.push_back(random());
  const OverlapIndex index(Pointers(layouts));
  for (int i = 0; i < 200; ++i) {
    const Layout region = random();
    const std::vector<size_t> near = index.Near(region);
    EXPECT_TRUE(std::is_sorted(near.begin(), near.end()));
    for (size_t j = 0; j < layouts.size(); ++j) {
      if (Overlap(region, layouts[j])) {
        EXPECT_TRUE(std::binary_search(near.begin(), near.end(), j));
      }
    }
  }
}

}  // namespace
}  // namespace ttrace::overlap_index_test
