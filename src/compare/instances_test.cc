// Sums and replicas: which pieces belong together, seen from outside.

#include "src/compare/instances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/testing/sharded_trace.h"

namespace ttrace::instances_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Instances, AMissingTermOfASumIsNamed) {
  const std::vector<double> values = RandomIntegers(7);
  const ShardedTrace whole(kShape, values, kWhole);
  Sharding s;
  s.mesh.dims = {{"dp", 2}, {"tp", 2}};
  s.placements = {{"tp", Partial{}}};
  const ShardedTrace cand(kShape, values, s,
                          [](Piece* piece) { return piece->rank != 3; });
  const auto got = CompareTensor(whole.pieces(), cand.pieces());
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code(), ErrorCode::kIncomparable);
  EXPECT_THAT(got.error().message(), HasSubstr("layer"));
  EXPECT_THAT(got.error().message(), HasSubstr("rank 3"));
  EXPECT_THAT(got.error().message(), HasSubstr("tp=1"));
}

TEST(Instances, AMissingTermOfAMicroBatchIsNamed) {
  Sharding s;
  s.mesh.dims = {{"cp", 2}};
  s.placements = {{"cp", Partial{}}, {"mb", Partial{}}};
  s.micro_batches = {{1, 1, 1}};
  const ShardedTrace cand({1}, {5}, s, [](Piece* piece) {
    return piece->rank != 1 || piece->micro_batch != 2;
  });
  const auto got = SumOfSquares(cand.pieces());
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code(), ErrorCode::kIncomparable);
}

TEST(Instances, MicroBatchesOfAllDataRanksAreTermsOfOneSum) {
  Sharding s;
  s.mesh.dims = {{"dp", 2}};
  s.placements = {{"dp", Partial{}}, {"mb", Partial{}}};
  s.micro_batches = {{1, 1}, {1, 1}};  // numbers 0, 1 and 2, 3
  s.dtype = DType::kI64;
  std::vector<int> numbers;
  const ShardedTrace cand({1}, {0}, s, [&](Piece* piece) {
    numbers.push_back(piece->micro_batch);
    piece->values[0] = 10 + piece->micro_batch;
    return true;
  });
  EXPECT_THAT(numbers, ElementsAre(0, 1, 2, 3));
  const auto got = ReadBox(cand.pieces(), {0}, {1});
  ASSERT_TRUE(got.ok()) << got.error().message();
  EXPECT_THAT(*got, ElementsAre(46));
  Sharding mean = s;
  mean.placements = {{"dp", Partial{ReduceOp::kAvg}},
                     {"mb", Partial{ReduceOp::kSum}}};
  const ShardedTrace averaged({1}, {0}, mean, [&](Piece* piece) {
    piece->values[0] = 10 + piece->micro_batch;
    return true;
  });
  EXPECT_THAT(*ReadBox(averaged.pieces(), {0}, {1}), ElementsAre(23));
}

TEST(Instances, SumOverAsksWhetherCopiesAreTerms) {
  const std::vector<double> values = RandomIntegers(8);
  const ShardedTrace whole(kShape, values, kWhole);
  Sharding replicated;
  replicated.mesh.dims = {{"tp", 2}};
  // Declared Replicate, but each holds half: a missing all-reduce.
  const ShardedTrace cand(kShape, values, replicated, [](Piece* piece) {
    for (double& value : piece->values) {
      value = piece->rank == 0 ? value - 7 : 7;
    }
    return true;
  });
  const auto plain = CompareTensor(whole.pieces(), cand.pieces());
  ASSERT_TRUE(plain.ok());
  EXPECT_GT(plain->total.mismatched, 0);
  CompareOptions options;
  options.sum_over = {"tp"};
  const auto summed = CompareTensor(whole.pieces(), cand.pieces(), options);
  ASSERT_TRUE(summed.ok()) << summed.error().message();
  EXPECT_EQ(summed->total.mismatched, 0);
  ASSERT_EQ(summed->instances.size(), 1U);
  EXPECT_THAT(summed->instances[0].ranks, ElementsAre(0, 1));
  options.extra_scale = 0.5;
  const auto mean = CompareTensor(whole.pieces(), cand.pieces(), options);
  ASSERT_TRUE(mean.ok());
  EXPECT_NEAR(mean->total.projection(), 0.5, 1e-12);
}

TEST(Instances, ABadReplicaIsNotHiddenByAGoodOne) {
  const std::vector<double> values = RandomIntegers(9);
  const ShardedTrace whole(kShape, values, kWhole);
  Sharding s;
  s.mesh.dims = {{"dp", 2}, {"tp", 2}};
  s.placements = {{"tp", Shard{2}}};
  const ShardedTrace cand(kShape, values, s, [](Piece* piece) {
    if (piece->rank == 3) piece->values[5] += 2;
    return true;
  });
  const auto got = CompareTensor(whole.pieces(), cand.pieces());
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->total.mismatched, 1);
  EXPECT_EQ(got->total.count, kCount);
  EXPECT_EQ(got->total.sum_sq_err, 4);
  ASSERT_EQ(got->instances.size(), 4U);
  EXPECT_EQ(got->instances[3].stats.mismatched, 1);
  const auto replicas = CompareReplicas(cand.pieces());
  ASSERT_TRUE(replicas.ok());
  EXPECT_EQ(replicas->groups, 2);
  EXPECT_EQ(replicas->copies, 2);
  EXPECT_EQ(replicas->differing, 1);
  EXPECT_GT(replicas->worst_rel_err, 0);
  EXPECT_THAT(replicas->differing_ranks, ElementsAre(1, 3));
  EXPECT_THAT(replicas->mesh_dims, ElementsAre("dp"));
}

TEST(Instances, NaNInOneReplicaDiffersInfinitely) {
  Sharding s;
  s.mesh.dims = {{"tp", 2}};
  const ShardedTrace cand(kShape, RandomIntegers(10), s, [](Piece* piece) {
    if (piece->rank == 1) {
      piece->values[0] = std::numeric_limits<double>::quiet_NaN();
    }
    return true;
  });
  const auto replicas = CompareReplicas(cand.pieces());
  ASSERT_TRUE(replicas.ok());
  EXPECT_EQ(replicas->differing, 1);
  EXPECT_TRUE(std::isinf(replicas->worst_rel_err));
}

TEST(Instances, PerMicroBatchValuesWithoutRowsMeetTheirOwn) {
  Sharding s;
  s.mesh.dims = {{"dp", 1}};
  s.micro_batches = {{1, 1, 1}};
  const auto by_micro_batch = [](Piece* piece) {
    piece->values[0] = piece->micro_batch;
    return true;
  };
  const ShardedTrace ref({1}, {0}, s, by_micro_batch);
  const ShardedTrace cand({1}, {0}, s, by_micro_batch);
  const auto got = CompareTensor(ref.pieces(), cand.pieces());
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(got->total.bitwise_equal());
  const auto replicas = CompareReplicas(cand.pieces());
  ASSERT_TRUE(replicas.ok());
  EXPECT_EQ(replicas->groups, 0);
}

TEST(Instances, ATermRecordedTwiceMakesTwoSumsNotOneDouble) {
  const std::vector<double> values = RandomIntegers(19);
  Sharding s;
  s.mesh.dims = {{"tp", 2}};
  s.placements = {{"tp", Partial{}}};
  const ShardedTrace whole(kShape, values, kWhole);
  const ShardedTrace cand(kShape, values, s);
  TensorPieces twice = cand.pieces();
  const auto pieces = twice.pieces;
  for (const Record& piece : pieces) twice.pieces.push_back(piece);
  const auto got = CompareTensor(whole.pieces(), twice);
  ASSERT_TRUE(got.ok()) << got.error().message();
  EXPECT_EQ(got->total.mismatched, 0);
  EXPECT_EQ(got->instances.size(), 2U);
  const auto copies = CompareReplicas(twice);
  ASSERT_TRUE(copies.ok());
  EXPECT_EQ(copies->copies, 1);
}

}  // namespace
}  // namespace ttrace::instances_test
