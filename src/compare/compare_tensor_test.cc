#include "src/compare/compare_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <vector>

#include "src/compare/row_map.h"
#include "src/compare/testing/sharded_trace.h"

namespace ttrace::compare_tensor_test {
namespace {

using testing::HasSubstr;

int64_t Pick(std::mt19937& rng, int64_t from, int64_t to) {
  return std::uniform_int_distribution<int64_t>(from, to)(rng);
}

Placement RandomPlacement(std::mt19937& rng, int dim, int size) {
  switch (Pick(rng, 0, 4)) {
    case 0:
      return Shard{dim};
    case 1:
      if (kShape[static_cast<size_t>(dim)] % (size * 2) != 0) {
        return Shard{dim};
      }
      return StridedShard{dim, 2};
    case 2:
      if (kShape[static_cast<size_t>(dim)] % (size * 2) != 0) {
        return Shard{dim};
      }
      return ZigzagShard{dim};
    case 3:
      return Partial{};
    default:
      return Replicate{};
  }
}

// `rows` cut into random parts.
std::vector<int64_t> RandomCut(std::mt19937& rng, int64_t rows) {
  std::vector<int64_t> cut;
  while (rows > 0) {
    cut.push_back(Pick(rng, 1, rows));
    rows -= cut.back();
  }
  return cut;
}

Sharding RandomSharding(std::mt19937& rng) {
  Sharding s;
  const int dp = 1 << Pick(rng, 0, 1);
  const int cp = static_cast<int>(Pick(rng, 1, 3));
  const int tp = 1 << Pick(rng, 0, 2);
  s.mesh.dims = {{"dp", dp}, {"cp", cp}, {"tp", tp}};
  s.placements = {{"cp", RandomPlacement(rng, 0, cp)},
                  {"tp", RandomPlacement(rng, 2, tp)}};
  s.dtype = Pick(rng, 0, 3) == 0 ? DType::kF64 : DType::kF32;
  if (Pick(rng, 0, 3) == 0) s.scale = {1, 4};
  switch (Pick(rng, 0, 2)) {
    case 0:  // a batch
      s.batch_dim = 1;
      for (int r = 0; r < dp; ++r) {
        s.micro_batches.push_back(RandomCut(rng, 8 / dp));
      }
      break;
    case 1:  // a sum over dp
      s.placements.emplace_back("dp", Partial{});
      break;
    default:
      break;
  }
  return s;
}

std::string Describe(const Sharding& s) {
  std::ostringstream out;
  for (const MeshDim& dim : s.mesh.dims) out << dim.name << dim.size << ' ';
  out << ToString(s.placements) << " mb";
  for (const auto& group : s.micro_batches) {
    for (const int64_t rows : group) out << ' ' << rows;
    out << ';';
  }
  return out.str();
}

bool SameStats(const ErrorStats& a, const ErrorStats& b) {
  return a.count == b.count && a.mismatched == b.mismatched &&
         a.sum_sq_err == b.sum_sq_err && a.sum_err_ref == b.sum_err_ref &&
         a.sum_sq_ref == b.sum_sq_ref && a.max_abs_err == b.max_abs_err &&
         a.max_abs_ref == b.max_abs_ref && a.max_elem == b.max_elem &&
         a.sum_sq_elem == b.sum_sq_elem &&
         a.max_block_sq_err == b.max_block_sq_err;
}

TEST(CompareTensor, AnyShardingOfOneTensorIsBitwiseEqualToAnyOther) {
  std::mt19937 rng(1);
  const std::vector<double> values = RandomIntegers(2);
  double squares = 0;
  for (const double value : values) squares += value * value;
  for (int round = 0; round < 40; ++round) {
    const Sharding a = round % 2 == 0 ? kWhole : RandomSharding(rng);
    const Sharding b = RandomSharding(rng);
    SCOPED_TRACE(Describe(a) + " | " + Describe(b));
    const ShardedTrace ref(kShape, values, a);
    const ShardedTrace cand(kShape, values, b);
    CompareOptions options;
    options.tile_elements = round % 3 == 0 ? 37 : 1 << 16;
    const auto got = CompareTensor(ref.pieces(), cand.pieces(), options);
    ASSERT_TRUE(got.ok()) << got.error().message();
    EXPECT_EQ(got->total.mismatched, 0);
    EXPECT_EQ(got->total.count, kCount);
    EXPECT_EQ(got->total.sum_sq_err, 0);
    EXPECT_EQ(got->total.max_abs_ref,
              std::fabs(*std::max_element(values.begin(), values.end(),
                                          [](double x, double y) {
                                            return std::fabs(x) < std::fabs(y);
                                          })));
    EXPECT_NEAR(got->total.sum_sq_ref, squares, 1e-6 * squares);
    EXPECT_TRUE(got->complete());
    const auto own = SumOfSquares(cand.pieces());
    ASSERT_TRUE(own.ok());
    EXPECT_NEAR(own->sum, squares, 1e-6 * squares);
    EXPECT_EQ(own->count, kCount);
    const auto copies = CompareReplicas(cand.pieces());
    ASSERT_TRUE(copies.ok());
    EXPECT_EQ(copies->differing, 0);
    const auto box = ReadBox(cand.pieces(), {0, 0, 0}, kShape);
    ASSERT_TRUE(box.ok());
    EXPECT_EQ(*box, values);
    if (HasFailure()) return;
  }
}

TEST(CompareTensor, OneChangedElementIsFoundWithItsExactSize) {
  std::mt19937 rng(3);
  const std::vector<double> values = RandomIntegers(4);
  for (int round = 0; round < 20; ++round) {
    const Sharding sharding = RandomSharding(rng);
    SCOPED_TRACE(Describe(sharding));
    const ShardedTrace ref(kShape, values, kWhole);
    const double factor = sharding.scale.value();
    int64_t skip = Pick(rng, 0, 3);
    size_t planted = kCount;
    const auto plant = [&](Piece* piece) {
      if (piece->values.empty() || skip-- != 0) return true;
      const size_t at = piece->values.size() / 2;
      piece->values[at] += 3 / factor;
      planted = LogicalIndices(piece->layout)[at];
      return true;
    };
    const ShardedTrace cand(kShape, values, sharding, plant);
    if (planted == kCount) continue;  // fewer pieces than we skip
    const auto got = CompareTensor(ref.pieces(), cand.pieces());
    ASSERT_TRUE(got.ok()) << got.error().message();
    EXPECT_EQ(got->total.mismatched, 1);
    EXPECT_EQ(got->total.max_abs_err, 3);
    EXPECT_EQ(got->total.sum_sq_err, 9);
    EXPECT_EQ(got->total.sum_err_ref, 3 * values[planted]);
    EXPECT_EQ(got->total.count, kCount);
    EXPECT_TRUE(got->complete());
    const auto wrong = std::count_if(
        got->instances.begin(), got->instances.end(),
        [](const InstanceStats& i) { return i.stats.mismatched != 0; });
    EXPECT_EQ(wrong, 1);
  }
}

// cp, tp and rows leave no element to two ranks.
Sharding EveryElementOnce() {
  Sharding s;
  s.mesh.dims = {{"dp", 2}, {"cp", 2}, {"tp", 4}};
  s.placements = {{"cp", ZigzagShard{0}}, {"tp", Shard{2}}};
  s.batch_dim = 1;
  s.micro_batches = {{1, 3}, {2, 2}};
  return s;
}

// A noise leg of the reference, seen through the cuts of a candidate.
TEST(CompareWithin, TellsWhatAPairOfTensorsDoesToEachRegion) {
  const std::vector<double> values = RandomReals(11);
  const std::vector<double> noisy = RandomReals(12);
  const ShardedTrace ref(kShape, values, kWhole);
  const ShardedTrace cand(kShape, noisy, EveryElementOnce());
  const auto direct = CompareTensor(ref.pieces(), cand.pieces());
  ASSERT_TRUE(direct.ok()) << direct.error().message();
  ASSERT_EQ(direct->regions.size(), 32u);
  std::mt19937 rng(13);
  for (int round = 0; round < 6; ++round) {
    Sharding sharding = round == 0 ? kWhole : RandomSharding(rng);
    sharding.dtype = DType::kF32;
    sharding.scale = {1, 1};
    SCOPED_TRACE(Describe(sharding));
    const ShardedTrace other(kShape, noisy, sharding);
    const auto within =
        CompareWithin(ref.pieces(), other.pieces(), direct->regions);
    ASSERT_TRUE(within.ok()) << within.error().message();
    ASSERT_EQ(within->size(), direct->regions.size());
    ErrorStats total;
    for (const InstanceStats& instance : direct->instances) {
      const ErrorStats& region =
          (*within)[static_cast<size_t>(instance.region)];
      EXPECT_EQ(region.count, instance.stats.count);
      EXPECT_NEAR(region.sum_sq_err, instance.stats.sum_sq_err,
                  1e-5 * instance.stats.sum_sq_err);
      total.Merge(region);
    }
    EXPECT_EQ(total.count, kCount);
    EXPECT_NEAR(total.sum_sq_err, direct->total.sum_sq_err,
                1e-5 * direct->total.sum_sq_err);
    EXPECT_NEAR(total.sum_sq_ref, direct->total.sum_sq_ref,
                1e-9 * direct->total.sum_sq_ref);
  }
}

TEST(CompareTensor, AMissingPieceIsAGapOfItsSize) {
  const std::vector<double> values = RandomIntegers(5);
  const ShardedTrace whole(kShape, values, kWhole);
  for (int missing = 0; missing < 32; missing += 9) {
    int64_t size = 0;
    int at = 0;
    const auto drop = [&](Piece* piece) {
      if (at++ != missing) return true;
      size = piece->layout.local_count();
      return false;
    };
    const ShardedTrace holed(kShape, values, EveryElementOnce(), drop);
    const auto as_cand = CompareTensor(whole.pieces(), holed.pieces());
    ASSERT_TRUE(as_cand.ok());
    EXPECT_GT(size, 0);
    EXPECT_EQ(as_cand->candidate_gap, size);
    EXPECT_EQ(as_cand->reference_gap, 0);
    EXPECT_FALSE(as_cand->complete());
    EXPECT_EQ(as_cand->total.count, kCount - size);
    EXPECT_TRUE(as_cand->total.bitwise_equal());
    const auto as_ref = CompareTensor(holed.pieces(), whole.pieces());
    ASSERT_TRUE(as_ref.ok());
    EXPECT_EQ(as_ref->reference_gap, size);
    EXPECT_EQ(as_ref->candidate_gap, 0);
    const auto alike = CompareTensor(holed.pieces(), holed.pieces());
    ASSERT_TRUE(alike.ok());
    EXPECT_EQ(alike->common_gap, size);
    EXPECT_EQ(as_cand->common_gap + as_ref->common_gap, 0);
    const auto box = ReadBox(holed.pieces(), {0, 0, 0}, kShape);
    ASSERT_TRUE(box.ok());
    EXPECT_EQ(std::count_if(box->begin(), box->end(),
                            [](double x) { return std::isnan(x); }),
              size);
  }
}

TEST(CompareTensor, PartlyOverlappingPiecesAreCounted) {
  const std::vector<double> values = RandomIntegers(6);
  Sharding s;
  s.mesh.dims = {{"dp", 2}};
  s.batch_dim = 1;
  s.micro_batches = {{4}, {5}};
  s.row_overlap = 1;  // rows 0..3 and 3..7
  const ShardedTrace whole(kShape, values, kWhole);
  const ShardedTrace cand(kShape, values, s);
  const auto got = CompareTensor(whole.pieces(), cand.pieces());
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->candidate_overlap, 12 * 16);
  EXPECT_EQ(got->candidate_gap, 0);
  EXPECT_FALSE(got->complete());
  const auto reversed = CompareTensor(cand.pieces(), whole.pieces());
  ASSERT_TRUE(reversed.ok());
  EXPECT_EQ(reversed->reference_overlap, 12 * 16);
  const auto squares = SumOfSquares(cand.pieces());
  ASSERT_FALSE(squares.ok());
  EXPECT_EQ(squares.error().code(), ErrorCode::kIncomparable);
  const auto copies = CompareReplicas(cand.pieces());
  ASSERT_TRUE(copies.ok());
  EXPECT_EQ(copies->groups, 0);
}

TEST(CompareTensor, SquaresOfPiecesMergeToThoseOfTheTensor) {
  Sharding s;
  s.mesh.dims = {{"dp", 2}, {"tp", 2}};
  s.placements = {{"tp", Shard{2}}};
  s.batch_dim = 1;
  s.micro_batches = {{1, 3}, {2, 2}};
  const ShardedTrace trace(kShape, RandomReals(8), s);
  const TensorPieces all = trace.pieces();
  const auto squares = SumOfSquares(all);
  ASSERT_TRUE(squares.ok()) << squares.error().message();
  ErrorSums merged;
  for (const Record& record : all.pieces) {
    TensorPieces one;
    one.trace = all.trace;
    one.pieces.push_back(record);
    const auto sums = ExactSquares(one);
    ASSERT_TRUE(sums.ok()) << sums.error().message();
    merged.Merge(*sums);
  }
  EXPECT_EQ(all.pieces.size(), 8);
  EXPECT_EQ(merged.sum_sq_ref.Value(), squares->sum);
  EXPECT_EQ(merged.count, squares->count);
}

void Shuffle(std::mt19937& rng, RecordList* list) {
  std::vector<Record> records(list->begin(), list->end());
  std::shuffle(records.begin(), records.end(), rng);
  list->clear();
  for (const Record& record : records) list->push_back(record);
}

TEST(CompareTensor, DoesNotDependOnTheOrderOfRecords) {
  const std::vector<double> a = RandomReals(11);
  const std::vector<double> b = RandomReals(12);
  std::mt19937 rng(13);
  for (int round = 0; round < 8; ++round) {
    const ShardedTrace ref(kShape, a, RandomSharding(rng));
    const ShardedTrace cand(kShape, b, RandomSharding(rng));
    TensorPieces r = ref.pieces();
    TensorPieces c = cand.pieces();
    const auto want = CompareTensor(r, c);
    ASSERT_TRUE(want.ok()) << want.error().message();
    const auto copies = CompareReplicas(c);
    ASSERT_TRUE(copies.ok());
    for (int shuffle = 0; shuffle < 4; ++shuffle) {
      Shuffle(rng, &r.pieces);
      Shuffle(rng, &c.pieces);
      const auto got = CompareTensor(r, c);
      ASSERT_TRUE(got.ok());
      EXPECT_TRUE(SameStats(got->total, want->total));
      ASSERT_EQ(got->instances.size(), want->instances.size());
      for (size_t i = 0; i < got->instances.size(); ++i) {
        EXPECT_EQ(got->instances[i].ranks, want->instances[i].ranks);
        EXPECT_TRUE(
            SameStats(got->instances[i].stats, want->instances[i].stats));
      }
      const auto again = CompareReplicas(c);
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(again->worst_rel_err, copies->worst_rel_err);
    }
  }
}

TEST(CompareTensor, ShardsCutAtBlocksHaveTheSumsOfTheWholeToTheLastBit) {
  const Shape shape = {64, 1024};
  std::mt19937 rng(14);
  std::normal_distribution<double> normal;
  std::vector<double> a(64 * 1024), b(64 * 1024);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = normal(rng);
    b[i] = a[i] + 1e-3 * normal(rng);
  }
  const ShardedTrace ref(shape, a, kWhole);
  const ShardedTrace whole(shape, b, kWhole);
  CompareOptions options;
  options.element_scale = 1;
  const auto want = CompareTensor(ref.pieces(), whole.pieces(), options);
  ASSERT_TRUE(want.ok());
  Sharding s;
  s.mesh.dims = {{"cp", 2}, {"tp", 2}};
  s.placements = {{"cp", ZigzagShard{0}}, {"tp", Shard{1}}};
  const ShardedTrace cand(shape, b, s);
  EXPECT_GT(want->total.max_elem, 0);
  for (const int64_t tile : {2048, 1 << 16}) {
    options.tile_elements = tile;
    const auto got = CompareTensor(ref.pieces(), cand.pieces(), options);
    ASSERT_TRUE(got.ok());
    EXPECT_TRUE(SameStats(got->total, want->total)) << tile;
  }
}

TEST(CompareTensor, SumsDoNotDependOnTheTilesSize) {
  const Shape shape = {20000};
  std::mt19937 rng(18);
  std::normal_distribution<double> normal;
  std::vector<double> a(20000), b(20000);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = normal(rng);
    b[i] = normal(rng);
  }
  Sharding s;
  s.mesh.dims = {{"tp", 3}};  // cuts at 6667, inside a block
  s.placements = {{"tp", Shard{0}}};
  const ShardedTrace ref(shape, a, kWhole);
  const ShardedTrace cand(shape, b, s);
  const auto want = CompareTensor(ref.pieces(), cand.pieces());
  ASSERT_TRUE(want.ok());
  for (const int64_t tile : {1024, 1500, 4096}) {
    CompareOptions options;
    options.tile_elements = tile;
    const auto got = CompareTensor(ref.pieces(), cand.pieces(), options);
    ASSERT_TRUE(got.ok());
    EXPECT_TRUE(SameStats(got->total, want->total)) << tile;
  }
}

TEST(CompareTensor, MoreCutsLowerTheLargestBlockAndNoElement) {
  const Shape shape = {64, 256};
  std::mt19937 rng(21);
  std::normal_distribution<double> normal;
  std::vector<double> a(64 * 256), b(64 * 256);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = normal(rng);
    b[i] = a[i] + 1e-3 * normal(rng);
  }
  CompareOptions options;
  options.element_scale = 1;
  Sharding halves;  // rows of 128: each block is cut into four
  halves.mesh.dims = {{"tp", 2}};
  halves.placements = {{"tp", Shard{1}}};
  const ShardedTrace whole_a(shape, a, kWhole);
  const ShardedTrace whole_b(shape, b, kWhole);
  const ShardedTrace cut_a(shape, a, halves);
  const ShardedTrace cut_b(shape, b, halves);
  const auto whole = CompareTensor(whole_a.pieces(), whole_b.pieces(), options);
  const auto cut = CompareTensor(whole_a.pieces(), cut_b.pieces(), options);
  ASSERT_TRUE(whole.ok() && cut.ok());
  EXPECT_LT(cut->total.max_block_sq_err, whole->total.max_block_sq_err);
  EXPECT_GT(cut->total.max_block_sq_err, whole->total.max_block_sq_err / 4);
  EXPECT_EQ(cut->total.max_elem, whole->total.max_elem);
  // A candidate is never cut less than what its bound was measured with.
  const auto noise = CompareTensor(cut_a.pieces(), cut_b.pieces(), options);
  const auto against = CompareTensor(cut_a.pieces(), whole_b.pieces(), options);
  ASSERT_TRUE(noise.ok() && against.ok());
  EXPECT_EQ(against->total.max_block_sq_err, noise->total.max_block_sq_err);
}

TEST(CompareTensor, AGoodCopyHidesNoWrongElement) {
  const std::vector<double> values = RandomIntegers(22);
  Sharding copies;
  copies.mesh.dims = {{"dp", 3}};
  // The second copy has the worse norm, the third the worse element.
  const auto plant = [](Piece* piece) {
    if (piece->rank == 1) {
      for (size_t i = 0; i < 600; ++i) piece->values[i] += 5;
    }
    if (piece->rank == 2) piece->values[7] += 90;
    return true;
  };
  const ShardedTrace ref(kShape, values, kWhole);
  const ShardedTrace cand(kShape, values, copies, plant);
  CompareOptions options;
  options.element_scale = 1;
  const auto got = CompareTensor(ref.pieces(), cand.pieces(), options);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->total.sum_sq_err, 600 * 25);
  EXPECT_FLOAT_EQ(static_cast<float>(got->total.max_elem),
                  static_cast<float>(90 / (std::fabs(values[7]) + 1)));
  EXPECT_EQ(got->instances[2].stats.max_block_sq_err, 8100);
  EXPECT_EQ(got->total.max_block_sq_err, 512 * 25);
}

TEST(CompareTensor, RowMapMovesTheCandidatesBatchRows) {
  const std::vector<double> values = RandomIntegers(15);
  RowMap map;
  map.to_reference = {3, 1, 7, 0, 2, 6, 5, 4};
  std::vector<double> permuted(values.size());
  for (size_t i = 0; i < permuted.size(); ++i) {
    const size_t row = i / 16 % 8;
    const auto from = static_cast<size_t>(map.to_reference[row]);
    permuted[i] = values[i - row * 16 + from * 16];
  }
  Sharding s = EveryElementOnce();
  const ShardedTrace ref(kShape, values, s);
  s.micro_batches = {{4}, {3, 1}};
  const ShardedTrace cand(kShape, permuted, s);
  CompareOptions options;
  const auto unmapped = CompareTensor(ref.pieces(), cand.pieces(), options);
  ASSERT_TRUE(unmapped.ok());
  EXPECT_GT(unmapped->total.mismatched, 0);
  options.rows = &map;
  const auto mapped = CompareTensor(ref.pieces(), cand.pieces(), options);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  EXPECT_EQ(mapped->total.mismatched, 0);
  EXPECT_EQ(mapped->total.count, kCount);
  EXPECT_TRUE(mapped->complete());
  map.to_reference[0] = 1;
  const auto twice = CompareTensor(ref.pieces(), cand.pieces(), options);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code(), ErrorCode::kInvalidArgument);
}

TEST(CompareTensor, DifferentGlobalShapesAreIncomparable) {
  const ShardedTrace a({4, 6}, RandomIntegers(16, 24), kWhole);
  const ShardedTrace b({6, 4}, RandomIntegers(16, 24), kWhole);
  const auto got = CompareTensor(a.pieces(), b.pieces());
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code(), ErrorCode::kIncomparable);
  EXPECT_THAT(got.error().message(), HasSubstr("[4, 6]"));
  EXPECT_THAT(got.error().message(), HasSubstr("[6, 4]"));
}

TEST(CompareTensor, ScalarsAndEmptyTensorsAreTensors) {
  const ShardedTrace a({}, {4}, kWhole);
  const ShardedTrace b({}, {5}, kWhole);
  const auto scalar = CompareTensor(a.pieces(), b.pieces());
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ(scalar->total.count, 1);
  EXPECT_EQ(scalar->total.sum_sq_err, 1);
  EXPECT_TRUE(scalar->complete());
  const ShardedTrace empty({0, 3}, {}, kWhole);
  const auto none = CompareTensor(empty.pieces(), empty.pieces());
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->total.count, 0);
  EXPECT_TRUE(none->complete());
}

// Gaps too wide to read across: each row is a read of its own.
TEST(ReadBox, FindsRowsThatLieFarApart) {
  const Shape shape = {4, 6, 50000};
  std::vector<double> values(4 * 6 * 50000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(i);  // exact in float
  }
  const ShardedTrace cand(shape, values, kWhole);
  const auto box = ReadBox(cand.pieces(), {0, 1, 500}, {4, 3, 10});
  ASSERT_TRUE(box.ok());
  ASSERT_EQ(box->size(), 4U * 3 * 10);
  size_t at = 0;
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 1; j < 4; ++j)
      for (size_t k = 500; k < 510; ++k)
        EXPECT_EQ((*box)[at++], values[(i * 6 + j) * 50000 + k]);
}

TEST(ReadBox, GivesABoxAndRefusesOneOutside) {
  const std::vector<double> values = RandomIntegers(17);
  const ShardedTrace cand(kShape, values, EveryElementOnce());
  const auto box = ReadBox(cand.pieces(), {3, 2, 5}, {4, 3, 9});
  ASSERT_TRUE(box.ok());
  ASSERT_EQ(box->size(), 4U * 3 * 9);
  size_t at = 0;
  for (size_t i = 3; i < 7; ++i)
    for (size_t j = 2; j < 5; ++j)
      for (size_t k = 5; k < 14; ++k)
        EXPECT_EQ((*box)[at++], values[(i * 8 + j) * 16 + k]);
  EXPECT_FALSE(ReadBox(cand.pieces(), {0, 0, 10}, {1, 1, 7}).ok());
  EXPECT_FALSE(ReadBox(cand.pieces(), {0, 0}, {1, 1}).ok());
}

}  // namespace
}  // namespace ttrace::compare_tensor_test
