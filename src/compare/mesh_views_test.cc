// Experts: their parameters and gradients lie in another grid of the ranks than
// everything else.

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/align/read_local.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/testing/sharded_trace.h"

namespace ttrace::mesh_views_test {
namespace {

// [experts, features]
const Shape kExperts = {4, 12};

std::vector<double> SomeValues() { return RandomIntegers(5, 48); }

Sharding Experts(int dp, int tp, int edp, int ep, int etp) {
  Sharding s;
  s.mesh.dims = {{"pp", 1}, {"dp", dp}, {"cp", 1}, {"tp", tp}};
  s.views = {{{{"pp", 1}, {"edp", edp}, {"ep", ep}, {"etp", etp}}}};
  s.placements = {{"edp", Partial{}}, {"ep", Shard{0}}, {"etp", Shard{1}}};
  s.reduced_over = {"edp"};
  return s;
}

// Eight ranks; and twelve, where (edp 3, ep 2, etp 2) is no refinement of
// (dp 3, tp 4) nor of (dp 2, tp 6).
std::vector<Sharding> Grids() {
  return {Experts(4, 2, 4, 2, 1), Experts(4, 2, 2, 2, 2),
          Experts(3, 4, 2, 2, 3), Experts(2, 6, 3, 2, 2)};
}

TEST(MeshViews, TermsAlongAViewAreSummed) {
  const ShardedTrace whole(kExperts, SomeValues(), kWhole);
  for (Sharding sharding : Grids()) {
    const int edp = sharding.views[0].dims[1].size;
    const ShardedTrace cand(kExperts, SomeValues(), sharding);
    const auto got = CompareTensor(whole.pieces(), cand.pieces());
    ASSERT_TRUE(got.ok()) << got.error().message();
    EXPECT_TRUE(got->complete());
    EXPECT_EQ(got->total.count, 48);
    EXPECT_EQ(got->total.mismatched, 0);
    for (const InstanceStats& instance : got->instances) {
      EXPECT_EQ(instance.ranks.size(), static_cast<size_t>(edp));
    }
    // And read back at any place.
    sharding.dtype = DType::kF64;
    const ShardedTrace exact(kExperts, SomeValues(), sharding);
    Layout want;
    want.dims = {{{{0, 4}}, 4}, {{{0, 12}}, 12}};
    std::vector<double> out(48);
    const Status status = ReadLocal(exact.pieces(), want, DType::kF64, {},
                                    std::as_writable_bytes(std::span(out)));
    ASSERT_TRUE(status.ok()) << status.error().message();
    EXPECT_EQ(out, SomeValues());
  }
}

TEST(MeshViews, AMissingTermIsNamedByItsPlaceInTheView) {
  // Rank 5 of (edp 4, ep 2, etp 1) is edp=2 of the second expert pair.
  const ShardedTrace whole(kExperts, SomeValues(), kWhole);
  const ShardedTrace cand(kExperts, SomeValues(), Grids()[0],
                          [](Piece* piece) { return piece->rank != 5; });
  const auto got = CompareTensor(whole.pieces(), cand.pieces());
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code(), ErrorCode::kIncomparable);
  EXPECT_NE(got.error().message().find("rank 5 (edp=2)"), std::string::npos)
      << got.error().message();
}

TEST(MeshViews, CopiesDifferAlongDimensionsOfTheView) {
  for (const size_t which : {size_t{0}, size_t{3}}) {
    Sharding sharding = Grids()[which];
    sharding.placements = {{"ep", Shard{0}}, {"etp", Shard{1}}};
    sharding.reduced_over.clear();
    const ShardedTrace cand(kExperts, SomeValues(), sharding, [](Piece* piece) {
      if (piece->rank == 4) piece->values[0] += 1;
      return true;
    });
    const auto copies = CompareReplicas(cand.pieces());
    ASSERT_TRUE(copies.ok()) << copies.error().message();
    EXPECT_EQ(copies->differing, 1);
    EXPECT_EQ(copies->differing_ranks, (std::vector<int>{0, 4}));
    EXPECT_EQ(copies->mesh_dims, std::vector<std::string>{"edp"});
    // Their sum is asked for by the same name.
    CompareOptions options;
    options.sum_over = {"edp"};
    const int edp = sharding.views[0].dims[1].size;
    options.extra_scale = 1.0 / edp;
    const ShardedTrace whole(kExperts, SomeValues(), kWhole);
    const auto mean = CompareTensor(whole.pieces(), cand.pieces(), options);
    ASSERT_TRUE(mean.ok());
    EXPECT_NEAR(mean->total.max_abs_err, 1.0 / edp, 1e-4);
  }
}

TEST(MeshViews, BoxesOfAnExpertLieAlongTheView) {
  // Each pair of experts, 24 elements, is cut by flat ranges over edp.
  Sharding s = Grids()[0];
  s.placements = {{"edp", RaggedShard{}}, {"ep", Shard{0}}, {"etp", Shard{1}}};
  s.ragged_dim = "edp";
  s.ranges = {{0, 5}, {5, 8}, {13, 0}, {13, 11}};
  const ShardedTrace whole(kExperts, SomeValues(), kWhole);
  const ShardedTrace cand(kExperts, SomeValues(), s);
  const auto got = CompareTensor(whole.pieces(), cand.pieces());
  ASSERT_TRUE(got.ok()) << got.error().message();
  EXPECT_TRUE(got->complete());
  EXPECT_EQ(got->total.count, 48);
  EXPECT_EQ(got->total.mismatched, 0);
}

}  // namespace
}  // namespace ttrace::mesh_views_test
