// Parameters whose parts are flat ranges over data-parallel ranks, as a sharded
// optimizer holds them, against the whole.

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/align/read_local.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/row_map.h"
#include "src/compare/testing/sharded_trace.h"

namespace ttrace::ragged_shard_test {
namespace {

const Shape kParameter = {5, 8};

std::vector<double> SomeValues() { return RandomIntegers(3, 40); }

// The parameter is cut along dimension 1 by tp; each half of [5, 4], 20
// elements, is cut into `ranges` over dp.
Sharding Optimizer(const std::vector<Segment>& ranges) {
  Sharding s;
  s.mesh.dims = {{"dp", static_cast<int>(ranges.size())}, {"tp", 2}};
  s.placements = {{"dp", RaggedShard{}}, {"tp", Shard{1}}};
  s.ranges = ranges;
  return s;
}

// Ranges over two and three ranks that end inside of rows, and one rank that
// has nothing.
std::vector<Sharding> Optimizers() {
  return {Optimizer({{0, 9}, {9, 11}}), Optimizer({{0, 7}, {7, 7}, {14, 6}}),
          Optimizer({{0, 20}, {20, 0}}), Optimizer({{0, 3}, {3, 0}, {3, 17}})};
}

TEST(RaggedShard, MergesToTheWhole) {
  const ShardedTrace whole(kParameter, SomeValues(), kWhole);
  for (const Sharding& sharding : Optimizers()) {
    const ShardedTrace cut(kParameter, SomeValues(), sharding);
    for (const bool forward : {true, false}) {
      const auto got = forward ? CompareTensor(whole.pieces(), cut.pieces())
                               : CompareTensor(cut.pieces(), whole.pieces());
      ASSERT_TRUE(got.ok()) << got.error().message();
      EXPECT_TRUE(got->complete());
      EXPECT_EQ(got->common_gap, 0);
      EXPECT_EQ(got->total.count, 40);
      EXPECT_EQ(got->total.mismatched, 0);
    }
    const auto box = ReadBox(cut.pieces(), {0, 0}, kParameter);
    ASSERT_TRUE(box.ok());
    EXPECT_EQ(*box, SomeValues());
  }
  // Other cuts of one tensor meet without a gap.
  const ShardedTrace two(kParameter, SomeValues(), Optimizers()[0]);
  const ShardedTrace three(kParameter, SomeValues(), Optimizers()[1]);
  const auto got = CompareTensor(two.pieces(), three.pieces());
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(got->complete());
  EXPECT_EQ(got->total.mismatched, 0);
}

TEST(RaggedShard, AWrongValueIsFoundWhereItLies) {
  const ShardedTrace whole(kParameter, SomeValues(), kWhole);
  const ShardedTrace cut(
      kParameter, SomeValues(), Optimizers()[1], [](Piece* piece) {
        // dp=1, tp=1 holds elements 7 to 13 of its half: row 2 is a box.
        if (piece->rank == 3 && piece->layout.dims[0].segments[0].begin == 2) {
          piece->values[0] += 1000;
        }
        return true;
      });
  const auto got = CompareTensor(whole.pieces(), cut.pieces());
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(got->complete());
  EXPECT_EQ(got->total.mismatched, 1);
  int wrong = 0;
  for (const InstanceStats& instance : got->instances) {
    if (instance.stats.mismatched == 0) continue;
    ++wrong;
    EXPECT_EQ(instance.ranks, std::vector<int>{3});
    const Layout& region = got->regions[static_cast<size_t>(instance.region)];
    EXPECT_EQ(region.dims[0].segments, (std::vector<Segment>{{2, 1}}));
    EXPECT_EQ(region.dims[1].segments, (std::vector<Segment>{{4, 4}}));
  }
  EXPECT_EQ(wrong, 1);
}

TEST(RaggedShard, AMissingBoxIsAGap) {
  const ShardedTrace whole(kParameter, SomeValues(), kWhole);
  const ShardedTrace cut(
      kParameter, SomeValues(), Optimizers()[0], [](Piece* piece) {
        // dp=0, tp=0: nine elements, two whole rows of four and one element.
        return piece->rank != 0 || piece->layout.local_count() != 8;
      });
  const auto got = CompareTensor(whole.pieces(), cut.pieces());
  ASSERT_TRUE(got.ok());
  EXPECT_FALSE(got->complete());
  EXPECT_EQ(got->candidate_gap, 8);
  const Layout want = [] {
    Layout all;
    all.dims = {{{{0, 5}}, 5}, {{{0, 8}}, 8}};
    return all;
  }();
  std::vector<std::byte> out(40 * sizeof(float));
  const Status status = ReadLocal(cut.pieces(), want, DType::kF32, {}, out);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("8 of the wanted"),
            std::string::npos);
}

TEST(RaggedShard, EqualBoxesAreReplicas) {
  // Both data-parallel ranks hold the first nine elements, one of them wrongly.
  Sharding both = Optimizer({{0, 9}, {0, 9}});
  const ShardedTrace whole(kParameter, SomeValues(), kWhole);
  const ShardedTrace cut(kParameter, SomeValues(), both, [](Piece* piece) {
    if (piece->rank == 2 && piece->values.size() == 8) {
      piece->values[5] += 1;
    }
    return true;
  });
  const auto got = CompareTensor(whole.pieces(), cut.pieces());
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->candidate_overlap, 0);
  EXPECT_EQ(got->candidate_gap, 22);
  EXPECT_EQ(got->total.count, 18);
  EXPECT_EQ(got->total.mismatched, 1) << "the worst copy counts";
  const auto replicas = CompareReplicas(cut.pieces());
  ASSERT_TRUE(replicas.ok());
  EXPECT_EQ(replicas->groups, 4);
  EXPECT_EQ(replicas->differing, 1);
  EXPECT_EQ(replicas->differing_ranks, (std::vector<int>{0, 2}));
  EXPECT_EQ(replicas->mesh_dims, std::vector<std::string>{"dp"});
}

TEST(RaggedShard, BoxesThatOverlapInPartAreSaidToOverlap) {
  // The second range begins two elements too early, inside of a row.
  const ShardedTrace whole(kParameter, SomeValues(), kWhole);
  const ShardedTrace cut(kParameter, SomeValues(),
                         Optimizer({{0, 9}, {7, 13}}));
  const auto got = CompareTensor(whole.pieces(), cut.pieces());
  ASSERT_TRUE(got.ok());
  EXPECT_FALSE(got->complete());
  EXPECT_EQ(got->candidate_overlap, 4) << "two elements of each half";
  EXPECT_EQ(got->candidate_gap, 0);
}

// A gradient that is cut by flat ranges over dp, and still terms over cp.
Sharding Terms() {
  Sharding s = Optimizer({{0, 9}, {9, 11}});
  s.mesh.dims = {{"dp", 2}, {"cp", 3}, {"tp", 2}};
  s.placements = {{"dp", RaggedShard{}}, {"cp", Partial{}}, {"tp", Shard{1}}};
  return s;
}

TEST(RaggedShard, BoxesOfTermsAreSummedBoxByBox) {
  const ShardedTrace whole(kParameter, SomeValues(), kWhole);
  const ShardedTrace terms(kParameter, SomeValues(), Terms());
  const auto got = CompareTensor(whole.pieces(), terms.pieces());
  ASSERT_TRUE(got.ok()) << got.error().message();
  EXPECT_TRUE(got->complete());
  EXPECT_EQ(got->total.count, 40);
  EXPECT_EQ(got->total.mismatched, 0);
  for (const InstanceStats& instance : got->instances) {
    EXPECT_EQ(instance.ranks.size(), 3u);
  }

  const ShardedTrace holed(kParameter, SomeValues(), Terms(), [](Piece* piece) {
    return piece->rank != 4 || piece->layout.local_count() != 8;
  });
  const auto missing = CompareTensor(whole.pieces(), holed.pieces());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kIncomparable);
  EXPECT_NE(missing.error().message().find("rank 4"), std::string::npos)
      << missing.error().message();
}

TEST(RaggedShard, IsReadBackAtAnyPlace) {
  for (Sharding sharding : {Optimizers()[1], Terms()}) {
    sharding.dtype = DType::kF64;
    const ShardedTrace cut(kParameter, SomeValues(), sharding);
    // Rows 1 to 3, columns 6, 7, 2: a box of another cut, in another order.
    Layout want;
    want.dims = {{{{1, 3}}, 5}, {{{6, 2}, {2, 1}}, 8}};
    std::vector<double> out(9);
    const Status status = ReadLocal(cut.pieces(), want, DType::kF64, {},
                                    std::as_writable_bytes(std::span(out)));
    ASSERT_TRUE(status.ok()) << status.error().message();
    std::vector<double> expected;
    for (const size_t row : {1UL, 2UL, 3UL}) {
      for (const size_t column : {6UL, 7UL, 2UL}) {
        expected.push_back(SomeValues()[row * 8 + column]);
      }
    }
    EXPECT_EQ(out, expected);
  }
}

TEST(RaggedShard, BoxesOfABatchFollowTheRowMap) {
  // Rows lie along dimension 1: three on each tp rank. Whole slices of
  // dimension 0 are boxes.
  Sharding s = Optimizer({{0, 6}, {6, 9}});
  s.placements = {{"dp", RaggedShard{}}};
  s.batch_dim = 1;
  s.batch_mesh_dim = "tp";
  s.micro_batches = {{3}, {3}};
  const Shape shape = {5, 6};
  const std::vector<double> values = RandomIntegers(4, 30);
  const RowMap map = {{4, 2, 0, 1, 5, 3}};
  std::vector<double> permuted(30);
  for (size_t i = 0; i < 30; ++i) {
    const size_t row = i % 6;
    permuted[i] = values[i - row + static_cast<size_t>(map.to_reference[row])];
  }
  const ShardedTrace whole(shape, values, kWhole);
  const ShardedTrace cut(shape, permuted, s);
  CompareOptions options;
  options.rows = &map;
  const auto got = CompareTensor(whole.pieces(), cut.pieces(), options);
  ASSERT_TRUE(got.ok()) << got.error().message();
  EXPECT_TRUE(got->complete());
  EXPECT_EQ(got->total.count, 30);
  EXPECT_EQ(got->total.mismatched, 0);
}

}  // namespace
}  // namespace ttrace::ragged_shard_test
