#include "src/in_place/condense_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/compare/cells/compare_cells.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/row_map.h"
#include "src/compare/sample.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/compare/summaries/kept_sample.h"
#include "src/compare/summaries/tensor_summary.h"
#include "src/compare/testing/sharded_trace.h"
#include "src/experiment/leg_names.h"

namespace ttrace::condense_trace_test {
namespace {

using testing::HasSubstr;

constexpr size_t kBuckets = 256;  // smaller than a half of the tensor is

// The same tensor, of which only summaries are kept.
class Small {
 public:
  explicit Small(const ShardedTrace& trace, size_t buckets = kBuckets) {
    CondenseOptions options;
    options.from = trace.folder();
    options.to = folder_ / "trace";
    options.buckets = buckets;
    counts_ = OrDie(CondenseTrace(options));
    catalog_ = std::make_unique<Catalog>(OrDie(Trace::Open(options.to)));
  }
  TensorPieces pieces() const {
    return catalog_->tensors("real").begin()->second;
  }
  Catalog& catalog() { return *catalog_; }
  const ttrace::Condensed& counts() const { return counts_; }

 private:
  ScratchFolder folder_;
  ttrace::Condensed counts_;
  std::unique_ptr<Catalog> catalog_;
};

Sharding Cut(const Placement& placement, int ranks = 2) {
  Sharding s;
  s.mesh.dims = {{"tp", ranks}};
  s.placements = {{"tp", placement}};
  return s;
}

std::vector<double> Plus(std::vector<double> values, double share) {
  std::mt19937 rng(9);
  std::normal_distribution<double> normal;
  for (double& value : values) value += share * normal(rng);
  return values;
}

TEST(CondenseTrace, EqualTensorsAreEqualHoweverTheyAreCut) {
  const std::vector<double> values = RandomReals(1);
  const ShardedTrace whole(kShape, values, kWhole);
  for (const Sharding& cut : {Cut(Shard{0}), Cut(Shard{2}), Cut(Replicate{})}) {
    const ShardedTrace full(kShape, values, cut);
    const Small small(full);
    EXPECT_EQ(small.counts().summaries, 2);
    for (const size_t buckets : {kBuckets, size_t{0}}) {
      const Small reference(whole, buckets);
      for (const auto& [r, c] :
           {std::pair(reference.pieces(), full.pieces()),
            std::pair(whole.pieces(), small.pieces()),
            std::pair(reference.pieces(), small.pieces())}) {
        const auto compared = OrDie(CompareTensor(r, c));
        EXPECT_TRUE(compared.total.bitwise_equal());
        EXPECT_FALSE(compared.total.estimated());
        EXPECT_EQ(compared.total.count, kCount);
        EXPECT_EQ(compared.fidelity, Fidelity::kDigest);
        EXPECT_EQ(compared.instances.size(), 1u);
        EXPECT_EQ(compared.instances[0].ranks, (std::vector<int>{0, 1}));
      }
    }
  }
}

// Of copies the first is no better than the others: which rank holds other bits
// is told by digests, where the reference is cut alike or they are copies.
TEST(CondenseTrace, TheRankThatHoldsOtherBitsIsTold) {
  const std::vector<double> values = RandomReals(1);
  const Damage on_rank_1 = [](Piece* piece) {
    if (piece->rank == 1) piece->values[5] += 1;
    return true;
  };
  const auto ranks = [&](const Sharding& r, const Sharding& c,
                         size_t buckets = 0) {
    const ShardedTrace reference(kShape, values, r);
    const ShardedTrace candidate(kShape, values, c, on_rank_1);
    const auto compared = OrDie(
        CompareTensor(reference.pieces(), Small(candidate, buckets).pieces()));
    EXPECT_FALSE(compared.total.bitwise_equal());
    EXPECT_EQ(compared.regions.size(), 1u);
    return DifferingRanks(compared);
  };
  const std::vector<int> second = {1};
  for (const Sharding& cut : {Cut(Shard{0}), Cut(Replicate{})}) {
    EXPECT_EQ(ranks(cut, cut), second);
    EXPECT_EQ(ranks(cut, cut, kBuckets), second);
  }
  EXPECT_EQ(ranks(kWhole, Cut(Replicate{})), second);
  EXPECT_EQ(ranks(Cut(Shard{0}), Cut(Replicate{})), second);
  const std::vector<int> both = {0, 1};
  EXPECT_EQ(ranks(Cut(Partial{}), Cut(Partial{})), both) << "they make one sum";
  EXPECT_EQ(ranks(Cut(Shard{2}), Cut(Shard{0})), both)
      << "the digest of a part of a piece is not known";
}

TEST(CondenseTrace, AnErrorIsEstimatedAndLiesInItsInterval) {
  const std::vector<double> values = RandomReals(1);
  const ShardedTrace reference(kShape, values, kWhole);
  const Small small(reference);
  for (const double share : {1e-1, 1e-3, 1e-5}) {
    const ShardedTrace other(kShape, Plus(values, share), Cut(Shard{2}));
    const double truth =
        OrDie(CompareTensor(reference.pieces(), other.pieces()))
            .total.rel_err();
    const Small small_other(other);
    for (const TensorPieces& c : {other.pieces(), small_other.pieces()}) {
      const auto compared = OrDie(CompareTensor(small.pieces(), c));
      EXPECT_EQ(compared.fidelity, Fidelity::kSketch);
      EXPECT_GT(compared.total.mismatched, 0);
      EXPECT_NEAR(compared.total.rel_err(), truth, 0.2 * truth);
      EXPECT_LT(compared.total.AtLow().rel_err(), truth);
      EXPECT_GT(compared.total.AtHigh().rel_err(), truth);
      EXPECT_LT(compared.total.AtHigh().rel_err(), 1.3 * truth);
      EXPECT_GE(compared.total.max_abs_err, share);
      EXPECT_NEAR(compared.total.projection(), 1, share);
    }
  }
}

TEST(CondenseTrace, AFactorIsFoundInTheProjection) {
  const std::vector<double> values = RandomReals(1);
  std::vector<double> scaled = values;
  for (double& value : scaled) value *= 1.01;
  const Small r(ShardedTrace(kShape, values, kWhole));
  const Small c(ShardedTrace(kShape, scaled, kWhole));
  EXPECT_NEAR(OrDie(CompareTensor(r.pieces(), c.pieces())).total.projection(),
              1.01, 1e-4);
}

TEST(CondenseTrace, TermsOfASumAddUpInSketchesAndNotInDigests) {
  const std::vector<double> values = RandomReals(1);
  const ShardedTrace whole(kShape, values, kWhole);
  const ShardedTrace terms(kShape, values, Cut(Partial{}));
  const auto compared =
      OrDie(CompareTensor(whole.pieces(), Small(terms).pieces()));
  EXPECT_LT(compared.total.AtLow().rel_err(), 1e-6);
  EXPECT_LT(compared.total.AtHigh().rel_err(), 1e-4);
  const auto digests =
      OrDie(CompareTensor(whole.pieces(), Small(terms, 0).pieces()));
  EXPECT_EQ(digests.fidelity, Fidelity::kDigest);
  EXPECT_EQ(digests.total.AtLow().rel_err(), 0);
  EXPECT_TRUE(std::isinf(digests.total.AtHigh().rel_err()));
}

TEST(CondenseTrace, ElementsInOtherPlacesAreRecognised) {
  const std::vector<double> values = RandomReals(1);
  std::vector<double> moved(values.rbegin(), values.rend());
  const ShardedTrace r(kShape, values, kWhole);
  const ShardedTrace c(kShape, moved, Cut(Shard{0}));
  for (const size_t buckets : {kBuckets, size_t{0}}) {
    const auto compared =
        OrDie(CompareTensor(r.pieces(), Small(c, buckets).pieces()));
    EXPECT_TRUE(compared.reordered);
  }
  moved[3] += 1;
  const ShardedTrace other(kShape, moved, kWhole);
  EXPECT_FALSE(
      OrDie(CompareTensor(r.pieces(), Small(other).pieces())).reordered);
}

TEST(CondenseTrace, CopiesThatDifferAreFound) {
  const auto damage = [](Piece* piece) {
    if (piece->rank == 1) piece->values[7] += 0.5;
    return true;
  };
  const std::vector<double> values = RandomReals(1);
  const ShardedTrace bad(kShape, values, Cut(Replicate{}, 4), damage);
  const auto full = OrDie(CompareReplicas(bad.pieces()));
  for (const size_t buckets : {kBuckets, size_t{0}}) {
    const auto copies = OrDie(CompareReplicas(Small(bad, buckets).pieces()));
    EXPECT_EQ(copies.copies, full.copies);
    EXPECT_EQ(copies.differing, full.differing);
    EXPECT_EQ(copies.differing_ranks, full.differing_ranks);
    EXPECT_EQ(copies.mesh_dims, full.mesh_dims);
  }
}

// As gradients are under context parallelism: digests are of what is recorded,
// which copies have in common whatever it is multiplied by.
TEST(CondenseTrace, CopiesThatAreScaledAreEqual) {
  Sharding half = Cut(Replicate{}, 4);
  half.scale = {1, 2};
  const std::vector<double> values = RandomReals(1);
  const ShardedTrace good(kShape, values, half);
  const ShardedTrace bad(kShape, values, half, [](Piece* piece) {
    if (piece->rank == 1) piece->values[7] += 0.5;
    return true;
  });
  const ShardedTrace whole(kShape, values, kWhole);
  for (const size_t buckets : {kBuckets, size_t{0}}) {
    const Small small(good, buckets);
    EXPECT_EQ(OrDie(CompareReplicas(small.pieces())).differing, 0);
    EXPECT_EQ(OrDie(CompareReplicas(Small(bad, buckets).pieces())).differing,
              OrDie(CompareReplicas(bad.pieces())).differing);
    EXPECT_TRUE(OrDie(CompareTensor(small.pieces(), small.pieces()))
                    .total.bitwise_equal());
    // Whose digests are of other numbers.
    EXPECT_FALSE(
        OrDie(CompareTensor(Small(whole, buckets).pieces(), small.pieces()))
            .total.bitwise_equal());
  }
}

// Sums over tp, on two data-parallel ranks each.
TEST(CondenseTrace, CopiesOfASumAreNotCalledOtherOnes) {
  Sharding sums;
  sums.mesh.dims = {{"dp", 2}, {"tp", 2}};
  sums.placements = {{"tp", Partial{}}};
  const std::vector<double> values = RandomReals(1);
  const ShardedTrace good(kShape, values, sums);
  const ShardedTrace bad(kShape, values, sums, [](Piece* piece) {
    if (piece->rank == 3) piece->values[7] += 0.5;
    return true;
  });
  EXPECT_EQ(OrDie(CompareReplicas(bad.pieces())).differing, 1);
  for (const size_t buckets : {kBuckets, size_t{0}}) {
    EXPECT_EQ(OrDie(CompareReplicas(Small(good, buckets).pieces())).differing,
              0);
  }
  EXPECT_EQ(OrDie(CompareReplicas(Small(bad).pieces())).differing, 1);
  EXPECT_EQ(OrDie(CompareReplicas(Small(bad, 0).pieces())).copies, 0);
}

// As a replay does: else the run would not be called repeatable, and copies
// that differ would be allowed to.
TEST(CondenseTrace, SumsOfTheSameTermsAreEqual) {
  const std::vector<double> values = RandomReals(1);
  const ShardedTrace sums(kShape, values, Cut(Partial{}));
  const ShardedTrace other(kShape, values, Cut(Partial{}), [](Piece* piece) {
    if (piece->rank == 1) piece->values[7] += 0.5;
    return true;
  });
  for (const size_t buckets : {kBuckets, size_t{0}}) {
    const Small small(sums, buckets);
    const Small again(sums, buckets);
    EXPECT_TRUE(OrDie(CompareTensor(small.pieces(), again.pieces()))
                    .total.bitwise_equal());
    EXPECT_FALSE(
        OrDie(CompareTensor(small.pieces(), Small(other, buckets).pieces()))
            .total.bitwise_equal());
  }
}

TEST(CondenseTrace, WhatIsNotFiniteIsCountedAndNotEstimated) {
  std::vector<double> values = RandomReals(1);
  const Small good(ShardedTrace(kShape, values, kWhole));
  values[5] = std::numeric_limits<double>::quiet_NaN();
  const Small bad(ShardedTrace(kShape, values, kWhole));
  const auto compared = OrDie(CompareTensor(good.pieces(), bad.pieces()));
  EXPECT_EQ(compared.total.nonfinite_cand, 1);
  EXPECT_EQ(compared.total.nonfinite_differ, 1);
  EXPECT_TRUE(
      OrDie(CompareTensor(bad.pieces(), bad.pieces())).total.bitwise_equal());
}

TEST(CondenseTrace, SquaresAreThoseOfTheValues) {
  const ShardedTrace full(kShape, RandomReals(1), Cut(Shard{0}));
  const auto expected = OrDie(SumOfSquares(full.pieces()));
  const auto squares = OrDie(SumOfSquares(Small(full).pieces()));
  EXPECT_NEAR(squares.sum, expected.sum, 1e-9 * expected.sum);
  EXPECT_EQ(squares.count, expected.count);
}

TEST(CondenseTrace, WhatIsNotWholeIsNotCompared) {
  const auto damage = [](Piece* piece) { return piece->rank == 0; };
  const std::vector<double> values = RandomReals(1);
  const ShardedTrace whole(kShape, values, kWhole);
  const ShardedTrace half(kShape, values, Cut(Shard{0}), damage);
  const auto compared = CompareTensor(whole.pieces(), Small(half).pieces());
  ASSERT_FALSE(compared.ok());
  EXPECT_EQ(compared.error().code(), ErrorCode::kIncomparable);
}

// Which rows of the batch a piece holds may turn out later; what was made of it
// stays where it was.
TEST(CondenseTrace, WhatIsReadElsewhereThanItWasRecordedIsNotCompared) {
  const std::vector<double> values = RandomReals(1);
  const ShardedTrace whole(kShape, values, kWhole);
  Small halves(ShardedTrace(kShape, values, Cut(Shard{0})));
  ASSERT_TRUE(CompareTensor(whole.pieces(), halves.pieces()).ok());
  const TensorId id = halves.pieces().pieces.front().id();
  halves.catalog().Reread(id, [](RecordFields* record) {
    Segment& rows = record->layout.dims[0].segments.front();
    rows.begin = rows.size - rows.begin;  // the other half
  });
  const auto compared = CompareTensor(whole.pieces(), halves.pieces());
  ASSERT_FALSE(compared.ok());
  EXPECT_EQ(compared.error().code(), ErrorCode::kIncomparable);
}

TEST(CondenseTrace, ValuesCannotBeRead) {
  const Small small(ShardedTrace(kShape, RandomReals(1), kWhole));
  const TensorPieces pieces = small.pieces();
  std::byte byte;
  const Status read = pieces.trace->Read(pieces.pieces.front(), 0, {&byte, 1});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), ErrorCode::kIncomparable);
  EXPECT_THAT(read.error().message(), HasSubstr("only a sketch was kept"));
}

TEST(CondenseTrace, AnIncompleteTraceIsRefused) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder / "trace", "{}", false));
  const auto writer = OpenRank(folder / "trace", 0, 1);
  OrDie(AppendFloats(*writer, "x", {1, 2}));
  OrDie(writer->Close(false, "it was stopped"));
  CondenseOptions options;
  options.from = folder / "trace";
  options.to = folder / "small";
  const auto refused = CondenseTrace(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("it was stopped"));
  EXPECT_FALSE(std::filesystem::exists(folder / "small"));
}

// What noise reruns differ by is the same as from values.
// A leg whose values are `share` off.
void AppendLeg(const Leg& leg, double share, TraceWriter* writer) {
  const std::vector<double> values = Plus(RandomReals(1), share);
  const std::vector<float> floats(values.begin(), values.end());
  Occurrence occurrence = RealOccurrence();
  occurrence.leg = leg;
  const std::vector<int64_t> strides = {1};
  OrDie(writer->Append(
      PlainSpec("x", DType::kF32, {static_cast<int64_t>(floats.size())}),
      occurrence, {std::as_bytes(std::span(floats)).data(), strides}));
  OrDie(writer->Seal(0, leg));
}

// Whether its rerun is in the trace of the run, or a launch of its own.
class NoiseOfRun : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    OrDie(CreateTraceFolder(trace_, "{}", false));
    std::unique_ptr<TraceWriter> writer = OpenRank(trace_, 0, 1);
    AppendLeg("real", 0, writer.get());
    if (GetParam()) {
      OrDie(writer->Close(true, ""));
      OrDie(CreateTraceFolder(leg_, "{}", false));
      writer = OpenRank(leg_, 0, 1);
    }
    AppendLeg("noise.1", 1e-3, writer.get());
    OrDie(writer->Close(true, ""));
  }

  ScratchFolder folder_;
  std::string trace_ = folder_ / "trace";
  std::string leg_ = LegFolder(trace_, "noise.1");
};

INSTANTIATE_TEST_SUITE_P(CondenseTrace, NoiseOfRun, testing::Bool());

TEST_P(NoiseOfRun, IsKeptExactly) {
  CondenseOptions options;
  options.from = trace_;
  options.to = folder_ / "small";
  options.buckets = kBuckets;
  EXPECT_EQ(OrDie(CondenseTrace(options)).summaries, 1);
  EXPECT_TRUE(FindLegFolders(options.to).empty());
  const auto full = OrDie(Trace::Open(trace_));
  const auto rerun = GetParam() ? OrDie(Trace::Open(leg_)) : full;
  const auto small = OrDie(Trace::Open(options.to));
  ASSERT_EQ(small->records().size(), 2u);
  EXPECT_TRUE(small->records()[0].summary());
  ASSERT_TRUE(small->records()[1].measured());
  EXPECT_EQ(small->ranks()[0].sealed.size(), 2u);
  const Catalog catalog(small);
  const Catalog whole(full);
  const Catalog noisy(rerun);
  const TensorPieces& real = catalog.tensors("real").begin()->second;
  const TensorPieces& noise = catalog.tensors("noise.1").begin()->second;
  const std::vector<Layout> regions = {real.pieces.front().layout()};
  const auto kept = OrDie(CompareCellsWithin(real, noise, regions, 0));
  ASSERT_TRUE(kept);
  const auto expected =
      OrDie(CompareWithin(whole.tensors("real").begin()->second,
                          noisy.tensors("noise.1").begin()->second, regions));
  EXPECT_NEAR(kept->front().rel_err(), expected.front().rel_err(),
              1e-6 * expected.front().rel_err());
  EXPECT_EQ(kept->front().mismatched, expected.front().mismatched);
}

TEST(CondenseTrace, ARerunOfOtherRanksIsRefused) {
  const ScratchFolder folder;
  const std::string trace = folder / "trace";
  const std::string leg = LegFolder(trace, "noise.1");
  RankMeta meta;
  meta.coordinate = {0};
  for (const auto& [at, dim] : {std::pair(trace, "tp"), {leg, "dp"}}) {
    OrDie(CreateTraceFolder(at, "{}", false));
    meta.mesh.dims = {{dim, 1}};
    OrDie(OrDie(TraceWriter::Open(at, meta))->Close(true, ""));
  }
  CondenseOptions options;
  options.from = trace;
  options.to = folder / "small";
  const auto condensed = CondenseTrace(options);
  ASSERT_FALSE(condensed.ok());
  EXPECT_THAT(condensed.error().message(), HasSubstr("do not lie as those of"));
}

// A sketch is smaller than a part of it.
const Shape kLarge = {32, 8, 64};

std::vector<double> LargeValues() { return RandomIntegers(4, 32 * 8 * 64); }

TEST(KeptSample, OfShardsCopiesAndTermsIsWhatIsInTheValues) {
  const std::vector<double> values = LargeValues();
  const ShardedTrace whole(kLarge, values, kWhole);
  Sharding batches = Cut(Shard{2});
  batches.batch_dim = 1;
  batches.batch_mesh_dim = "none";
  batches.micro_batches = {{3, 2, 3}};
  Sharding means = Cut(Partial{ReduceOp::kAvg});
  means.scale = {1, 2};
  for (const Sharding& cut :
       {kWhole, Cut(Shard{0}), Cut(ZigzagShard{0}), Cut(StridedShard{2, 4}),
        Cut(Replicate{}), Cut(Partial{}), means, batches}) {
    const ShardedTrace full(kLarge, values, cut);
    for (const size_t buckets : {kBuckets, 2 * kBuckets}) {
      const Small small(full, buckets);
      ASSERT_EQ(small.counts().summaries, small.counts().records);
      const TensorPieces pieces = small.pieces();
      EXPECT_FALSE(GivesValues(pieces));
      const auto boxes = OrDie(PlanKept(kLarge, 1 << 20, {&pieces}));
      EXPECT_EQ(boxes.size(), 256u);
      // Where the run has values they are read at the same places.
      const auto kept = OrDie(ReadKept(pieces, boxes));
      EXPECT_EQ(kept, OrDie(ReadSample(full.pieces(), boxes)));
      EXPECT_EQ(kept, OrDie(ReadKept(full.pieces(), boxes)));
    }
  }
}

TEST(KeptSample, TermsAddUpAlsoWhereOnlyTheQuestionMakesThemTerms) {
  const std::vector<double> values = LargeValues();
  Sharding copies = Cut(Replicate{});
  const ShardedTrace full(kLarge, values, copies, [](Piece* piece) {
    for (double& value : piece->values) value *= piece->rank == 0 ? 0.25 : 0.5;
    return true;
  });
  const Small small(full);
  const TensorPieces pieces = small.pieces();
  CompareOptions options;
  options.sum_over = {"tp"};
  const auto boxes = OrDie(PlanKept(kLarge, 1, {&pieces}));
  auto expected =
      OrDie(ReadSample(ShardedTrace(kLarge, values, kWhole).pieces(), boxes));
  for (double& value : expected) value *= 0.75;
  EXPECT_EQ(OrDie(ReadKept(pieces, boxes, options)), expected);
}

TEST(KeptSample, OfTwoSketchesIsOfTheSamePlacesHoweverTheyAreCut) {
  const std::vector<double> values = LargeValues();
  const ShardedTrace whole(kLarge, values, kWhole);
  const Small rows(ShardedTrace(kLarge, values, Cut(Shard{0})));
  const Small columns(ShardedTrace(kLarge, values, Cut(Shard{2})));
  const auto pair = OrDie(SamplePair(rows.pieces(), columns.pieces(), 1, {}));
  EXPECT_TRUE(pair.of_summaries);
  EXPECT_EQ(pair.boxes.size(), 256u);
  EXPECT_EQ(pair.reference, pair.candidate);
  EXPECT_EQ(pair.reference, OrDie(ReadSample(whole.pieces(), pair.boxes)));
  size_t places = 1;
  for (const auto& indices : pair.indices) places *= indices.size();
  EXPECT_EQ(places, 256u);
  // With values on both sides as many as were asked for.
  const auto of_values =
      OrDie(SamplePair(whole.pieces(), whole.pieces(), 1 << 20, {}));
  EXPECT_FALSE(of_values.of_summaries);
  EXPECT_EQ(of_values.reference, values);
}

TEST(KeptSample, OfADigestThereIsNone) {
  const ShardedTrace whole(kLarge, LargeValues(), kWhole);
  const Small digest(whole, 0);
  const TensorPieces pieces = digest.pieces();
  EXPECT_FALSE(OrDie(HasSamples({&pieces})));
  EXPECT_FALSE(SamplePair(pieces, whole.pieces(), 1, {}).ok());
}

TEST(KeptSample, HasNothingElse) {
  const ShardedTrace whole(kLarge, LargeValues(), kWhole);
  const Small small(whole);
  const TensorPieces pieces = small.pieces();
  EXPECT_FALSE(ReadKept(pieces, PlanSample(kLarge, 256)).ok());
  EXPECT_FALSE(ReadKept(pieces, PlanSample(kLarge, 1 << 20)).ok());
  auto boxes = OrDie(PlanKept(kLarge, 1, {&pieces}));
  // Rows that are elsewhere than they were recorded.
  RowMap rows;
  for (int64_t i = 0; i < 8; ++i) rows.to_reference.push_back(7 - i);
  Sharding batches = Cut(Shard{2});
  batches.batch_dim = 1;
  batches.batch_mesh_dim = "none";
  batches.micro_batches = {{4, 4}};
  const Small in_rows(ShardedTrace(kLarge, LargeValues(), batches));
  CompareOptions options;
  options.rows = &rows;
  EXPECT_TRUE(ReadKept(in_rows.pieces(), boxes).ok());
  EXPECT_FALSE(ReadKept(in_rows.pieces(), boxes, options).ok());
  boxes.pop_back();
  EXPECT_FALSE(ReadKept(pieces, boxes).ok());
}

TEST(KeptSample, IsNotInWhatAnEarlierVersionWrote) {
  const std::vector<double> values = LargeValues();
  const ShardedTrace full(kLarge, values, Cut(Shard{0}));
  const Small small(full);
  ScratchFolder folder;
  const std::string path = folder / "earlier";
  OrDie(CreateTraceFolder(path, "{}", false));
  const Trace& trace = *small.pieces().trace;
  for (const RankTrace& rank : trace.ranks()) {
    const auto writer = OrDie(TraceWriter::Open(path, rank.meta));
    for (const Record& record : trace.records()) {
      if (record.rank() != rank.meta.rank) continue;
      TensorSummary summary = OrDie(ReadSummary(trace, record));
      ASSERT_TRUE(summary.sample);
      summary.sample.reset();
      RecordFields fields = record.fields();
      OrDie(writer->Restate(&fields, EncodeSummary(summary)));
    }
    OrDie(writer->Seal(0, "real"));
    OrDie(writer->Close(true, ""));
  }
  const Catalog earlier(OrDie(Trace::Open(path)));
  const TensorPieces pieces = earlier.tensors("real").begin()->second;
  EXPECT_TRUE(
      OrDie(CompareTensor(small.pieces(), pieces)).total.bitwise_equal());
  const TensorPieces now = small.pieces();
  EXPECT_TRUE(OrDie(HasSamples({&now})));
  EXPECT_FALSE(OrDie(HasSamples({&now, &pieces})));
  EXPECT_FALSE(PlanKept(kLarge, 1, {&now, &pieces}).ok());
  EXPECT_FALSE(ReadKept(pieces, OrDie(PlanKept(kLarge, 1, {&now}))).ok());
}

}  // namespace
}  // namespace ttrace::condense_trace_test
