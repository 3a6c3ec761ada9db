#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "ttrace/layout.h"

namespace ttrace::intersect_test {
namespace {

TEST(Intersect, GivesRunsSortedByGlobalIndex) {
  const DimLayout zigzag{{{0, 2}, {6, 2}}, 8};
  const DimLayout whole{{{0, 8}}, 8};
  EXPECT_EQ(Intersect(zigzag, whole),
            (std::vector<SharedRun>{{0, 0, 0, 2}, {2, 6, 6, 2}}));
  EXPECT_EQ(Intersect(whole, zigzag),
            (std::vector<SharedRun>{{0, 0, 0, 2}, {6, 2, 6, 2}}));
}

TEST(Intersect, FollowsLocalOrderAndNotGlobalOrder) {
  const DimLayout backwards{{{6, 2}, {0, 2}}, 8};
  const DimLayout middle{{{1, 6}}, 8};
  EXPECT_EQ(Intersect(backwards, middle),
            (std::vector<SharedRun>{{3, 0, 1, 1}, {0, 5, 6, 1}}));
}

TEST(Intersect, DisjointOrEmptyLayoutsShareNothing) {
  const DimLayout left{{{0, 4}}, 8};
  const DimLayout right{{{4, 4}}, 8};
  const DimLayout empty{{}, 8};
  EXPECT_TRUE(Intersect(left, right).empty());
  EXPECT_TRUE(Intersect(left, empty).empty());
  EXPECT_TRUE(Intersect(empty, right).empty());
}

TEST(Intersect, MatchesTheDefinitionForEveryPairOfCuts) {
  const DeviceMesh mesh{{{"cp", 2}, {"tp", 3}}};
  const std::vector<PlacementMap> maps = {
      {},
      {{"tp", Shard{0}}},
      {{"cp", ZigzagShard{0}}},
      {{"tp", StridedShard{0, 4}}},
      {{"cp", ZigzagShard{0}}, {"tp", Shard{0}}},
      {{"cp", StridedShard{0, 2}}, {"tp", StridedShard{0, 2}}}};
  std::vector<DimLayout> layouts;
  for (const PlacementMap& map : maps) {
    for (int rank = 0; rank < 6; ++rank) {
      const auto layout =
          ResolveLayout(mesh, {rank / 3, rank % 3}, map, {24}, {});
      ASSERT_TRUE(layout.ok());
      layouts.push_back(layout->dims[0]);
    }
  }
  const auto local_index = [](const DimLayout& layout) {
    std::map<int64_t, int64_t> index;
    int64_t local = 0;
    for (const Segment& s : layout.segments) {
      for (int64_t i = 0; i < s.size; ++i) index[s.begin + i] = local++;
    }
    return index;
  };
  for (const DimLayout& a : layouts) {
    for (const DimLayout& b : layouts) {
      const auto in_a = local_index(a);
      const auto in_b = local_index(b);
      std::map<int64_t, int64_t> shared;  // global -> local in b
      int64_t last = -1;
      for (const SharedRun& run : Intersect(a, b)) {
        EXPECT_GT(run.begin, last);
        EXPECT_GT(run.size, 0);
        last = run.begin;
        for (int64_t i = 0; i < run.size; ++i) {
          EXPECT_EQ(in_a.at(run.begin + i), run.a_local + i);
          EXPECT_EQ(in_b.at(run.begin + i), run.b_local + i);
          EXPECT_TRUE(shared.emplace(run.begin + i, run.b_local + i).second);
        }
      }
      size_t expected = 0;
      for (const auto& [global, local] : in_a) expected += in_b.count(global);
      EXPECT_EQ(shared.size(), expected);
    }
  }
}

}  // namespace
}  // namespace ttrace::intersect_test
