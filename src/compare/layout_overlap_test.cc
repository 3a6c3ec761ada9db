#include "src/compare/layout_overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ttrace::layout_overlap_test {
namespace {

// Marks every element: what the sweep must not do.
LayoutOverlap ByDefinition(const std::vector<const Layout*>& a,
                           const std::vector<const Layout*>& b,
                           const Shape& shape) {
  LayoutOverlap coverage;
  const auto held = [](const std::vector<const Layout*>& side,
                       const std::vector<int64_t>& at) {
    int n = 0;
    for (const Layout* layout : side) {
      bool inside = true;
      for (size_t d = 0; d < at.size(); ++d) {
        bool any = false;
        for (const Segment& s : layout->dims[d].segments) {
          any = any || (at[d] >= s.begin && at[d] < s.begin + s.size);
        }
        inside = inside && any;
      }
      n += inside ? 1 : 0;
    }
    return n;
  };
  for (int64_t i = 0; i < shape[0]; ++i) {
    for (int64_t j = 0; j < shape[1]; ++j) {
      const int x = held(a, {i, j});
      const int y = held(b, {i, j});
      coverage.both += x > 0 && y > 0 ? 1 : 0;
      coverage.only_a += x > 0 && y == 0 ? 1 : 0;
      coverage.only_b += x == 0 && y > 0 ? 1 : 0;
      coverage.twice_a += x > 1 ? 1 : 0;
      coverage.twice_b += y > 1 ? 1 : 0;
    }
  }
  return coverage;
}

TEST(LayoutOverlap, AgreesWithMarkingEveryElement) {
  std::mt19937 rng(1);
  const Shape shape = {13, 17};
  for (int round = 0; round < 200; ++round) {
    std::vector<Layout> layouts(1 + rng() % 6);
    for (Layout& layout : layouts) {
      for (const int64_t size : shape) {
        DimLayout dim;
        dim.global_size = size;
        for (int64_t at = static_cast<int64_t>(rng() % 6); at < size;) {
          const auto n =
              std::min<int64_t>(size - at, 1 + static_cast<int64_t>(rng() % 8));
          dim.segments.push_back({at, n});
          at += n + 1 + static_cast<int64_t>(rng() % 5);
        }
        if (rng() % 2 == 0) {  // zigzag: not in rising order
          std::swap(dim.segments.front(), dim.segments.back());
        }
        layout.dims.push_back(dim);
      }
    }
    std::vector<const Layout*> a, b;
    for (const Layout& layout : layouts) {
      (rng() % 2 == 0 ? a : b).push_back(&layout);
    }
    const LayoutOverlap want = ByDefinition(a, b, shape);
    const LayoutOverlap got = MeasureOverlap(a, b);
    EXPECT_EQ(got.both, want.both);
    EXPECT_EQ(got.only_a, want.only_a);
    EXPECT_EQ(got.only_b, want.only_b);
    EXPECT_EQ(got.twice_a, want.twice_a);
    EXPECT_EQ(got.twice_b, want.twice_b);
  }
}

TEST(LayoutOverlap, CostsNothingForHugeTensors) {
  constexpr int64_t kSize = int64_t{1} << 30;
  std::vector<Layout> shards(64);
  std::vector<const Layout*> side;
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto begin = static_cast<int64_t>(i) * (kSize / 64);
    shards[i].dims = {{{{begin, kSize / 64}}, kSize}, {{{0, 2048}}, 2048}};
    side.push_back(&shards[i]);
  }
  Layout whole;
  whole.dims = {{{{0, kSize}}, kSize}, {{{0, 2048}}, 2048}};
  const LayoutOverlap got = MeasureOverlap({&whole}, side);
  EXPECT_EQ(got.both, kSize * 2048);
  EXPECT_EQ(got.only_a, 0);
  side.pop_back();
  EXPECT_EQ(MeasureOverlap({&whole}, side).only_a, kSize / 64 * 2048);
}

}  // namespace
}  // namespace ttrace::layout_overlap_test
