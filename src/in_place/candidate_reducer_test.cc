#include "src/in_place/candidate_reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/cells/compare_cells.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/compared_piece.h"
#include "src/compare/testing/error_fields.h"
#include "src/in_place/summarizer.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::candidate_reducer_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kRows = 64;
constexpr int64_t kColumns = 1024;

using Values = std::vector<float>;

Values Normal(uint32_t seed, double size = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal(0, size);
  Values out(static_cast<size_t>(kRows * kColumns));
  for (float& x : out) x = static_cast<float>(normal(rng));
  return out;
}

// Noise of the reference, and what a candidate rounds: well below.
constexpr double kNoise = 1e-6;
constexpr double kOwn = 5e-7;

// Each element times a factor of its own, 1 by about `size`.
Values Rounded(Values values, uint32_t seed, double size = kOwn) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal(0, size);
  for (float& x : values) x = static_cast<float>(x * (1 + normal(rng)));
  return values;
}

// Columns [begin, begin + count) of each row.
Values Columns(const Values& whole, int64_t begin, int64_t count) {
  Values out;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = begin; column < begin + count; ++column) {
      out.push_back(whole[static_cast<size_t>(row * kColumns + column)]);
    }
  }
  return out;
}

// A reference on one rank, and a candidate that was recorded with it, of one
// tensor.
class CandidateReducerTest : public testing::Test {
 protected:
  struct Piece {
    Leg leg;
    Values values;
    int rank = 0;
  };

  std::string reference() const { return scratch_ / "reference"; }

  static RecordSpec Spec(const PlacementMap& placements = {}) {
    RecordSpec spec = PlainSpec("m", DType::kF32, {kRows, kColumns});
    spec.role = Role::kOutput;
    spec.placements = placements;
    return spec;
  }
  static RecordSpec Half() {
    RecordSpec spec = Spec({{"tp", Shard{1}}});
    spec.local_shape = {kRows, kColumns / 2};
    return spec;
  }

  // `with`: the folder of the reference; empty: none.
  std::shared_ptr<Catalog> Record(const std::string& name, int ranks,
                                  const RecordSpec& spec,
                                  const std::vector<Piece>& pieces,
                                  const std::string& with) {
    const std::string folder = scratch_ / name;
    std::filesystem::remove_all(folder);
    OrDie(CreateTraceFolder(folder, "{}", true));
    for (int rank = 0; rank < ranks; ++rank) {
      const RankMeta meta = TensorParallelMeta(rank, ranks);
      const auto writer = OrDie(TraceWriter::Open(
          folder, meta,
          with.empty()
              ? nullptr
              : MakeCandidateReducer(meta, {"isolated", "fp32"}, with)));
      const auto strides = RowMajorStrides(spec.local_shape);
      for (const Piece& piece : pieces) {
        if (piece.rank != rank) continue;
        Occurrence occurrence;
        occurrence.leg = piece.leg;
        OrDie(writer->Append(
            spec, occurrence,
            {reinterpret_cast<const std::byte*>(piece.values.data()),
             strides}));
        OrDie(writer->Seal(0, piece.leg));
      }
      OrDie(writer->Close(true, ""));
    }
    return std::make_shared<Catalog>(OrDie(Trace::Open(folder)));
  }

  void SetUp() override {
    reference_ = Record("reference", 1, Spec(),
                        {{"real", real_},
                         {"isolated.noise.1", Rounded(real_, 2, kNoise)},
                         {"isolated.noise.2", Rounded(real_, 3, kNoise)}},
                        "");
  }

  std::shared_ptr<Catalog> InPlace(int ranks, const RecordSpec& spec,
                                   const std::vector<Piece>& pieces) {
    return Record("compared", ranks, spec, pieces, reference());
  }
  std::shared_ptr<Catalog> Kept(int ranks, const RecordSpec& spec,
                                const std::vector<Piece>& pieces) {
    return Record("kept", ranks, spec, pieces, "");
  }

  static const TensorPieces& Only(const std::shared_ptr<Catalog>& catalog,
                                  const Leg& leg = "isolated") {
    return catalog->tensors(leg).begin()->second;
  }

  static CompareOptions Options(const std::shared_ptr<Catalog>& reference) {
    const SquareSum squares = OrDie(SumOfSquares(Only(reference, "real")));
    CompareOptions options;
    options.element_scale = ElementScaleOf(squares.sum, squares.count);
    return options;
  }

  Result<TensorComparison> Compare(const std::shared_ptr<Catalog>& candidate) {
    return CompareTensor(Only(reference_, "real"), Only(candidate),
                         Options(reference_));
  }

  static std::vector<bool> Compared(const std::shared_ptr<Catalog>& catalog) {
    std::vector<bool> out;
    for (const auto& piece : Only(catalog).pieces) {
      out.push_back(!piece.compared_with().empty());
    }
    return out;
  }

  ScratchFolder scratch_;
  const Values real_ = Normal(1);
  std::shared_ptr<Catalog> reference_;
};

TEST_F(CandidateReducerTest, ComparedInPlaceIsWhatAReaderOfTheValuesFinds) {
  const Values own = Rounded(real_, 4);
  const std::vector<Piece> shards = {
      {"isolated", Columns(own, 0, kColumns / 2), 0},
      {"isolated", Columns(own, kColumns / 2, kColumns / 2), 1}};
  const std::vector<Piece> copies = {{"isolated", own, 0},
                                     {"isolated", own, 1}};
  for (const bool sharded : {true, false}) {
    const RecordSpec spec = sharded ? Half() : Spec();
    const auto& pieces = sharded ? shards : copies;
    const auto kept = Kept(2, spec, pieces);
    const auto compared = InPlace(2, spec, pieces);
    EXPECT_THAT(Compared(compared), ElementsAre(true, true));
    EXPECT_LT(Only(compared).pieces.front().extent().bytes, 1024);
    EXPECT_THAT(Only(compared).pieces.front().compared_with(),
                ElementsAre("real"));
    const TensorComparison a = OrDie(Compare(compared));
    const TensorComparison b = OrDie(Compare(kept));
    EXPECT_TRUE(a.complete());
    EXPECT_EQ(FieldsOf(a.total), FieldsOf(b.total));
    EXPECT_GT(a.total.max_elem, 0);
    ASSERT_EQ(a.instances.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(FieldsOf(a.instances[i].stats), FieldsOf(b.instances[i].stats));
      EXPECT_EQ(a.instances[i].ranks, b.instances[i].ranks);
    }
    const TensorComparison plain =
        OrDie(CompareTensor(Only(reference_, "real"), Only(compared)));
    EXPECT_EQ(
        FieldsOf(plain.total),
        FieldsOf(
            OrDie(CompareTensor(Only(reference_, "real"), Only(kept))).total))
        << "without errors of single elements";
  }
}

TEST_F(CandidateReducerTest, WhatIsNotCloseKeepsItsValues) {
  Values own = Rounded(real_, 4);
  own.back() *= 1.5F;
  const std::vector<Piece> pieces = {
      {"isolated", Columns(own, 0, kColumns / 2), 0},
      {"isolated", Columns(own, kColumns / 2, kColumns / 2), 1}};
  const auto compared = InPlace(2, Half(), pieces);
  EXPECT_THAT(Compared(compared), ElementsAre(true, false));
  EXPECT_EQ(FieldsOf(OrDie(Compare(compared)).total),
            FieldsOf(OrDie(Compare(Kept(2, Half(), pieces))).total));

  own = Rounded(real_, 4);
  own[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Compared(InPlace(1, Spec(), {{"isolated", own}})),
              ElementsAre(false));
  EXPECT_THAT(Compared(InPlace(1, Spec(),
                               {{"isolated", Rounded(real_, 4, 10 * kNoise)}})),
              ElementsAre(false))
      << "ten times the noise";
}

TEST_F(CandidateReducerTest, ValuesAreKeptOfWhatOneRankCannotJudge) {
  const Values own = Rounded(real_, 4);
  const auto is_compared = [&](int ranks, const RecordSpec& spec,
                               const Leg& leg) {
    const auto catalog = InPlace(ranks, spec, {{leg, own}});
    return !Only(catalog, leg).pieces.front().compared_with().empty();
  };
  EXPECT_TRUE(is_compared(1, Spec(), "isolated"));
  EXPECT_FALSE(is_compared(1, Spec(), "real")) << "no noise of whole runs";
  EXPECT_FALSE(is_compared(1, Spec(), "noise.1"));
  EXPECT_FALSE(is_compared(1, Spec(), "replay"));
  EXPECT_TRUE(is_compared(1, Spec({{"tp", Partial{}}}), "isolated"))
      << "its only term";
  EXPECT_FALSE(is_compared(2, Spec({{"tp", Partial{}}}), "isolated"));
  EXPECT_FALSE(is_compared(1, Spec({{"mb", Partial{}}}), "isolated"));
  RecordSpec other = Spec();
  other.fqn = "not_in_the_reference";
  EXPECT_FALSE(is_compared(1, other, "isolated"));
  other = Spec();
  other.local_shape = other.global_shape = {kRows, kColumns - 1};
  EXPECT_FALSE(is_compared(1, other, "isolated")) << "another shape";
}

TEST_F(CandidateReducerTest, ValuesAreKeptWhereTheBatchMayLieElsewhere) {
  const Values own = Rounded(real_, 4);
  const auto is_compared = [&](int batch_dim, int micro_batch) {
    RecordSpec spec = Spec();
    spec.batch_dim = batch_dim;
    const std::string folder = scratch_ / "batch";
    std::filesystem::remove_all(folder);
    OrDie(CreateTraceFolder(folder, "{}", true));
    const RankMeta meta = TensorParallelMeta(0, 1);
    const auto writer = OrDie(TraceWriter::Open(
        folder, meta, MakeCandidateReducer(meta, {"isolated"}, reference())));
    Occurrence occurrence;
    occurrence.leg = "isolated";
    occurrence.micro_batch = micro_batch;
    OrDie(writer->Append(spec, occurrence,
                         {reinterpret_cast<const std::byte*>(own.data()),
                          std::vector<int64_t>{kColumns, 1}}));
    OrDie(writer->Close(true, ""));
    const auto trace = OrDie(Trace::Open(folder));
    return !trace->records().front().compared_with().empty();
  };
  EXPECT_TRUE(is_compared(-1, -1));
  EXPECT_FALSE(is_compared(-1, 0)) << "of a micro-batch, and no row said";
  EXPECT_FALSE(is_compared(0, 0)) << "the reference says other rows";
}

TEST_F(CandidateReducerTest, WithoutNoiseOnlyEqualBitsAreClose) {
  Record("bare", 1, Spec(), {{"real", real_}}, "");
  const auto is_compared = [&](const Values& own) {
    return Compared(
        Record("compared", 1, Spec(), {{"isolated", own}}, scratch_ / "bare"));
  };
  EXPECT_THAT(is_compared(real_), ElementsAre(true));
  EXPECT_THAT(is_compared(Rounded(real_, 4)), ElementsAre(false));
}

TEST_F(CandidateReducerTest, ValuesAreKeptWhereTheReferenceSaysTooLittle) {
  const Values own = Rounded(real_, 4);
  const auto is_compared = [&](const RecordSpec& spec, const Values& values) {
    return Compared(Record("compared", 1, spec, {{"isolated", values}},
                           scratch_ / "other"));
  };
  // One rank of two left its half.
  Record("other", 2, Half(),
         {{"real", Columns(real_, 0, kColumns / 2), 0},
          {"isolated.noise.1", Rounded(Columns(real_, 0, kColumns / 2), 2), 0}},
         "");
  EXPECT_THAT(is_compared(Spec(), own), ElementsAre(false));
  EXPECT_THAT(is_compared(Spec(), real_), ElementsAre(false));

  // A parameter is the same or it is not.
  RecordSpec parameter = Spec();
  parameter.role = Role::kParam;
  Record("other", 1, parameter,
         {{"real", real_}, {"isolated.noise.1", Rounded(real_, 2, kNoise)}},
         "");
  EXPECT_THAT(is_compared(parameter, real_), ElementsAre(true));
  EXPECT_THAT(is_compared(parameter, own), ElementsAre(false));

  // Integers are not compared by a tolerance, nor here.
  RecordSpec integers = Spec();
  integers.dtype = DType::kI32;
  Record("other", 1, integers, {{"real", real_}}, "");
  EXPECT_THAT(is_compared(integers, real_), ElementsAre(false));

  const std::string folder = scratch_ / "other";
  std::filesystem::remove_all(folder);
  OrDie(CreateTraceFolder(folder, "{}", true));
  const auto writer = OrDie(
      TraceWriter::Open(folder, TensorParallelMeta(0, 1), MakeSummarizer(0)));
  OrDie(writer->Append(Spec(), RealOccurrence(),
                       {reinterpret_cast<const std::byte*>(real_.data()),
                        std::vector<int64_t>{kColumns, 1}}));
  OrDie(writer->Close(true, ""));
  EXPECT_THAT(is_compared(Spec(), real_), ElementsAre(false))
      << "of a digest no difference can be told";
}

TEST_F(CandidateReducerTest, WithoutAReadableReferenceValuesAreKept) {
  const Values own = Rounded(real_, 4);
  EXPECT_THAT(Compared(Record("other", 1, Spec(), {{"isolated", own}},
                              scratch_ / "missing")),
              ElementsAre(false));
  // One byte of the reference is another one.
  const std::string segment =
      reference() + "/rank-00000.r0/" + SegmentFileName(0);
  SetFileByte(segment, static_cast<size_t>(kSegmentHeaderBytes) + 5, '\x55');
  const auto catalog = InPlace(1, Spec(), {{"isolated", own}});
  EXPECT_THAT(Compared(catalog), ElementsAre(false));
  Values read(own.size());
  OrDie(catalog->trace().Read(Only(catalog).pieces.front(), 0,
                              std::as_writable_bytes(std::span(read))));
  EXPECT_EQ(read, own);
}

TEST_F(CandidateReducerTest, SaysNothingOfAnotherReference) {
  const auto compared = InPlace(1, Spec(), {{"isolated", Rounded(real_, 4)}});
  const auto refused = [&](const std::shared_ptr<Catalog>& reference,
                           const CompareOptions& options) {
    const auto result =
        CompareTensor(Only(reference, "real"), Only(compared), options);
    EXPECT_FALSE(result.ok());
    if (result.ok()) return;
    EXPECT_EQ(result.error().code(), ErrorCode::kIncomparable);
    EXPECT_THAT(result.error().message(), HasSubstr("--keep-values"));
  };
  const auto other =
      Record("other", 1, Spec(), {{"real", Rounded(real_, 9)}}, "");
  refused(other, Options(other));
  CompareOptions scaled = Options(reference_);
  scaled.element_scale *= 2;
  refused(reference_, scaled);
  scaled = Options(reference_);
  scaled.extra_scale = 2;
  refused(reference_, scaled);

  // The same values, recorded again by two ranks: the same reference.
  const auto again = Record("again", 1, Spec(), {{"real", real_}}, "");
  EXPECT_EQ(FieldsOf(OrDie(CompareTensor(Only(again, "real"), Only(compared),
                                         Options(reference_)))
                         .total),
            FieldsOf(OrDie(Compare(compared)).total));
}

TEST_F(CandidateReducerTest, CopiesAreToldApartByTheirDigests) {
  const Values own = Rounded(real_, 4);
  const auto differing = [&](const Values& second) {
    const auto compared =
        InPlace(2, Spec(), {{"isolated", own, 0}, {"isolated", second, 1}});
    ReplicaComparison copies = OrDie(CompareReplicas(Only(compared)));
    EXPECT_EQ(copies.copies, 1);
    return copies;
  };
  EXPECT_EQ(differing(own).differing, 0);
  Values other = own;
  other[3] = std::nextafter(other[3], 2.0F);
  EXPECT_EQ(differing(other).differing, 1);
  EXPECT_THAT(differing(other).differing_ranks, ElementsAre(0, 1));
  // One that is not close keeps its values.
  other = own;
  other[3] += 1;
  EXPECT_EQ(differing(other).differing, 1);
}

TEST_F(CandidateReducerTest, ADamagedComparisonIsNoComparison) {
  const auto compared = InPlace(1, Spec(), {{"isolated", Rounded(real_, 4)}});
  const auto& record = Only(compared).pieces.front();
  auto bytes = OrDie(compared->trace().ReadInstead(record));
  const auto code = [](const std::vector<std::byte>& damaged) {
    const auto piece = DecodeComparedPiece(damaged);
    return piece.ok() ? ErrorCode::kNotFound : piece.error().code();
  };
  EXPECT_EQ(code(bytes), ErrorCode::kNotFound);
  for (size_t size = 8; size < bytes.size(); ++size) {
    EXPECT_EQ(code({bytes.begin(), bytes.begin() + static_cast<long>(size)}),
              ErrorCode::kCorrupt)
        << size;
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(code(longer), ErrorCode::kCorrupt);
  auto newer = bytes;
  newer.front() = std::byte{9};
  EXPECT_EQ(code(newer), ErrorCode::kUnsupported);

  SetFileByte(compared->trace().ranks().front().folder + "/" +
                  SegmentFileName(record.extent().segment),
              static_cast<size_t>(record.extent().offset) + 20, '\x55');
  const auto again =
      std::make_shared<Catalog>(OrDie(Trace::Open(compared->trace().folder())));
  const auto result = Compare(again);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kCorrupt);
}

// The run as it was, and its replay.
class RealLegReducerTest : public CandidateReducerTest {
 protected:
  void SetUp() override {
    reference_ = Record("reference", 1, Spec(),
                        {{"real", real_},
                         {"noise.1", Rounded(real_, 2, kNoise)},
                         {"noise.2", Rounded(real_, 3, kNoise)},
                         {"fp32", Rounded(real_, 5, kOwn)}},
                        "");
  }

  static ErrorStats Repeat(const std::shared_ptr<Catalog>& candidate) {
    return OrDie(CompareTensor(Only(candidate, "real"),
                               Only(candidate, "replay")))
        .total;
  }

  const Values own_ = Rounded(real_, 4);
};

TEST_F(RealLegReducerTest, IsComparedWithBothLegsThatACheckReads) {
  const std::vector<Piece> pieces = {
      {"real", Columns(own_, 0, kColumns / 2), 0},
      {"real", Columns(own_, kColumns / 2, kColumns / 2), 1}};
  const auto kept = Kept(2, Half(), pieces);
  const auto compared = InPlace(2, Half(), pieces);
  for (const auto& piece : Only(compared, "real").pieces) {
    EXPECT_THAT(piece.compared_with(), ElementsAre("real", "fp32"));
    EXPECT_LT(piece.extent().bytes, 6000);
  }
  const CompareOptions options = Options(reference_);
  const auto real = [&](const std::shared_ptr<Catalog>& candidate) {
    return OrDie(CompareTensor(Only(reference_, "real"),
                               Only(candidate, "real"), options));
  };
  const TensorComparison a = real(compared);
  const TensorComparison b = real(kept);
  EXPECT_EQ(a.fidelity, Fidelity::kValues);
  EXPECT_EQ(FieldsOf(a.total), FieldsOf(b.total));
  const auto fp32 = [&](const std::shared_ptr<Catalog>& candidate) {
    return OrDie(CompareWithin(Only(reference_, "fp32"),
                               Only(candidate, "real"), b.regions, options));
  };
  const std::vector<ErrorStats> x = fp32(compared);
  const std::vector<ErrorStats> y = fp32(kept);
  ASSERT_EQ(x.size(), 2U);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(FieldsOf(x[i]), FieldsOf(y[i]));
}

TEST_F(RealLegReducerTest, AReplayBitByBitIsThereOnce) {
  const auto compared = InPlace(1, Spec(), {{"real", own_}, {"replay", own_}});
  const auto run = Only(compared, "real").pieces.front();
  const auto replay = Only(compared, "replay").pieces.front();
  EXPECT_EQ(replay.same_as(), run.sequence());
  EXPECT_EQ(replay.extent(), run.extent());
  EXPECT_EQ(replay.compared_with(), run.compared_with());
}

TEST_F(RealLegReducerTest, ByHowMuchAReplayDiffersIsEstimated) {
  const Values other = Rounded(own_, 8, kOwn);
  const double exact =
      Repeat(Kept(1, Spec(), {{"real", own_}, {"replay", other}})).rel_err();
  const auto compared = InPlace(1, Spec(), {{"real", own_}, {"replay", other}});
  EXPECT_FALSE(Only(compared, "replay").pieces.front().same_as());
  const ErrorStats estimate = Repeat(compared);
  EXPECT_TRUE(estimate.estimated());
  EXPECT_FALSE(estimate.bitwise_equal());
  EXPECT_LE(estimate.AtLow().rel_err(), exact);
  EXPECT_GE(estimate.AtHigh().rel_err(), exact);
}

TEST_F(RealLegReducerTest, AnotherReferenceIsToldByTheSummary) {
  const auto compared = InPlace(1, Spec(), {{"real", own_}});
  const Values values = Rounded(real_, 9, kNoise);
  const auto other = Record("other", 1, Spec(), {{"real", values}}, "");
  const auto against = [&](const std::shared_ptr<Catalog>& candidate) {
    return OrDie(CompareTensor(Only(other, "real"), Only(candidate, "real")));
  };
  const double exact =
      against(Kept(1, Spec(), {{"real", own_}})).total.rel_err();
  const TensorComparison estimate = against(compared);
  EXPECT_EQ(estimate.fidelity, Fidelity::kSketch);
  EXPECT_LE(estimate.total.AtLow().rel_err(), exact);
  EXPECT_GE(estimate.total.AtHigh().rel_err(), exact);
}

TEST_F(RealLegReducerTest, ValuesAreKeptOfWhatIsReadOtherwise) {
  const auto is_compared = [&](const auto& change) {
    RecordSpec spec = Spec();
    change(&spec);
    Record("reference", 1, spec, {{"real", real_}}, "");
    const auto compared = InPlace(1, spec, {{"real", real_}});
    return !Only(compared, "real").pieces.front().compared_with().empty();
  };
  EXPECT_TRUE(is_compared([](RecordSpec*) {}));
  for (const Role role : {Role::kData, Role::kParam, Role::kGradReduced,
                          Role::kParamUpdated, Role::kOptimState}) {
    EXPECT_FALSE(is_compared([&](RecordSpec* spec) { spec->role = role; }))
        << ToString(role);
  }
  EXPECT_FALSE(is_compared([](RecordSpec* spec) {
    spec->fqn = "";
    spec->role = Role::kInput;
  })) << "what rows are told by";
  EXPECT_FALSE(is_compared([](RecordSpec* spec) { spec->arg = "scores"; }))
      << "of a router";
}

}  // namespace
}  // namespace ttrace::candidate_reducer_test
