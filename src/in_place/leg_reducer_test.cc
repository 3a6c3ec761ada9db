#include "src/in_place/leg_reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/cells/compare_cells.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/testing/error_fields.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::leg_reducer_test {
namespace {

using testing::HasSubstr;

std::vector<float> Normal(int64_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = normal(rng);
  return out;
}

std::vector<float> Noisy(std::vector<float> values, uint32_t seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> noise(-0.01F, 0.01F);
  for (float& x : values) x *= 1 + noise(rng);
  return values;
}

// One rank's trace with some legs of one tensor.
class LegReducerTest : public testing::Test {
 protected:
  struct LegValues {
    Leg name;
    std::vector<float> values;
    int micro_batch = -1;
    int64_t row = 0;
  };

  // `measured`: with a reducer.
  std::unique_ptr<Catalog> Record(
      bool measured, const RecordSpec& spec, const std::vector<LegValues>& legs,
      const RankMeta& meta = TensorParallelMeta(0, 1)) {
    const std::string folder = scratch_ / (measured ? "measured" : "kept");
    std::filesystem::remove_all(folder);
    OrDie(CreateTraceFolder(folder, "{}", true));
    const auto writer = OrDie(TraceWriter::Open(
        folder, meta,
        measured ? MakeLegReducer(meta, {"replay", "noise.1"}) : nullptr));
    const auto strides = RowMajorStrides(spec.local_shape);
    for (const LegValues& leg : legs) {
      Occurrence occurrence;
      occurrence.leg = leg.name;
      occurrence.micro_batch = leg.micro_batch;
      occurrence.row_begin = leg.row;
      OrDie(writer->Append(
          spec, occurrence,
          {reinterpret_cast<const std::byte*>(leg.values.data()), strides}));
      if (&leg == &legs.back() || (&leg)[1].name != leg.name) {
        OrDie(writer->Seal(0, leg.name));
      }
    }
    OrDie(writer->Close(true, ""));
    return std::make_unique<Catalog>(OrDie(Trace::Open(folder)));
  }

  // One rank's part of a tensor in every leg.
  struct Part {
    RecordSpec spec;
    std::vector<LegValues> legs;
  };

  // A trace of ranks along "tp" that each hold a part. All have written a leg
  // before the next one begins; with `told` they tell each other of it.
  std::unique_ptr<Catalog> RecordRanks(bool measured,
                                       const std::vector<Part>& parts,
                                       bool told = true) {
    const std::string folder = scratch_ / (measured ? "measured" : "kept");
    std::filesystem::remove_all(folder);
    OrDie(CreateTraceFolder(folder, "{}", true));
    std::vector<std::unique_ptr<TraceWriter>> writers;
    std::vector<std::shared_ptr<ElementScales>> scales;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const RankMeta meta = TensorParallelMeta(static_cast<int>(rank),
                                               static_cast<int>(parts.size()));
      scales.push_back(std::make_shared<ElementScales>());
      writers.push_back(OrDie(TraceWriter::Open(
          folder, meta,
          measured ? MakeLegReducer(meta, {"replay", "noise.1"}, scales.back())
                   : nullptr)));
    }
    for (const char* leg : {"real", "replay", "noise.1"}) {
      std::vector<std::string> messages;
      for (size_t rank = 0; rank < parts.size(); ++rank) {
        WriteLeg(*writers[rank], parts[rank], leg);
        messages.push_back(scales[rank]->Message());
      }
      if (!told) continue;
      const std::string answer = OrDie(AddUpScales(messages));
      for (const auto& of : scales) OrDie(of->Learn(answer));
    }
    for (const auto& writer : writers) OrDie(writer->Close(true, ""));
    return std::make_unique<Catalog>(OrDie(Trace::Open(folder)));
  }

  static void WriteLeg(TraceWriter& writer, const Part& part, const Leg& name) {
    for (const LegValues& leg : part.legs) {
      if (leg.name != name) continue;
      Occurrence occurrence;
      occurrence.leg = leg.name;
      occurrence.micro_batch = leg.micro_batch;
      occurrence.row_begin = leg.row;
      OrDie(
          writer.Append(part.spec, occurrence,
                        {reinterpret_cast<const std::byte*>(leg.values.data()),
                         RowMajorStrides(part.spec.local_shape)}));
    }
    OrDie(writer.Seal(0, name));
  }

  // Whether a rank of `meta` has anything to tell of the last of `legs`.
  bool TellsOfLast(const RankMeta& meta, const RecordSpec& spec,
                   const std::vector<Leg>& legs) {
    const auto scales = std::make_shared<ElementScales>();
    const std::string nothing = scales->Message();
    const std::string folder = scratch_ / "told";
    std::filesystem::remove_all(folder);
    OrDie(CreateTraceFolder(folder, "{}", true));
    const auto writer = OrDie(TraceWriter::Open(
        folder, meta, MakeLegReducer(meta, {"noise.1"}, scales)));
    const auto values = Normal(32 * 1024, 1);
    std::string message;
    for (const Leg& leg : legs) {
      WriteLeg(*writer, {spec, {{leg, values}}}, leg);
      message = scales->Message();
    }
    return message != nothing;
  }

  static bool AllMeasured(const Catalog& catalog) {
    const TensorPieces& noisy = Only(catalog, "noise.1");
    return std::all_of(
        noisy.pieces.begin(), noisy.pieces.end(),
        [](const auto& piece) { return piece.measured().has_value(); });
  }

  // The scale that whoever measured used is that of a check that reads all.
  static void ExpectScaleOfAll(const Catalog& measured) {
    const TensorPieces& real = Only(measured, "real");
    const auto squares = OrDie(SumOfSquares(real));
    EXPECT_EQ(OrDie(ElementScaleMeasured(real, Only(measured, "noise.1"))),
              ElementScaleOf(squares.sum, squares.count));
  }

  static const TensorPieces& Only(const Catalog& catalog, const Leg& leg) {
    return catalog.tensors(leg).begin()->second;
  }

  static std::vector<ErrorStats> Within(const Catalog& catalog,
                                        const std::vector<Layout>& regions) {
    const TensorPieces& real = Only(catalog, "real");
    const auto squares = OrDie(SumOfSquares(real));
    auto cells =
        OrDie(CompareCellsWithin(real, Only(catalog, "noise.1"), regions,
                                 ElementScaleOf(squares.sum, squares.count)));
    EXPECT_TRUE(cells.has_value());
    return cells.value_or(std::vector<ErrorStats>());
  }

  ScratchFolder scratch_;
};

void ExpectEqual(const std::vector<ErrorStats>& a,
                 const std::vector<ErrorStats>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(FieldsOf(a[i]), FieldsOf(b[i])) << i;
  }
}

Layout Columns(const Layout& whole, size_t dim, int64_t begin, int64_t size) {
  Layout out = whole;
  out.dims[dim].segments = {{begin, size}};
  return out;
}

TEST_F(LegReducerTest, MeasuredInPlaceIsWhatAReaderOfTheValuesMeasures) {
  const RecordSpec spec = PlainSpec("m", DType::kF32, {64, 1, 1024});
  const auto real = Normal(64 * 1024, 1);
  const std::vector<LegValues> legs = {{"real", real},
                                       {"noise.1", Noisy(real, 2)}};
  const auto kept = Record(false, spec, legs);
  const auto measured = Record(true, spec, legs);
  ASSERT_FALSE(Only(*kept, "noise.1").pieces.front().measured());
  ASSERT_TRUE(Only(*measured, "noise.1").pieces.front().measured());
  EXPECT_LT(Only(*measured, "noise.1").pieces.front().extent().bytes,
            Only(*kept, "noise.1").pieces.front().extent().bytes / 10);
  const Layout whole = Only(*kept, "real").pieces.front().layout();
  std::vector<Layout> regions = {whole};
  for (int64_t k = 0; k < 8; ++k)
    regions.push_back(Columns(whole, 2, k * 128, 128));
  for (int64_t k = 0; k < 4; ++k)
    regions.push_back(Columns(whole, 0, k * 16, 16));
  regions.push_back(Columns(whole, 2, 100, 333));  // cuts cells
  const auto stats = Within(*measured, regions);
  ExpectEqual(stats, Within(*kept, regions));

  // Regions of whole cells: what a comparison of their elements gives.
  regions.pop_back();
  CompareOptions options;
  const auto squares = OrDie(SumOfSquares(Only(*kept, "real")));
  options.element_scale = ElementScaleOf(squares.sum, squares.count);
  const auto exact = OrDie(CompareWithin(
      Only(*kept, "real"), Only(*kept, "noise.1"), regions, options));
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(stats[i].count, exact[i].count);
    EXPECT_EQ(stats[i].mismatched, exact[i].mismatched);
    EXPECT_NEAR(stats[i].sum_sq_err / exact[i].sum_sq_err, 1, 1e-6);
    EXPECT_NEAR(stats[i].sum_sq_ref / exact[i].sum_sq_ref, 1, 1e-6);
    EXPECT_NEAR(stats[i].sum_sq_elem / exact[i].sum_sq_elem, 1, 1e-6);
    EXPECT_NEAR(stats[i].sum_err_ref, exact[i].sum_err_ref,
                1e-6 * std::sqrt(exact[i].sum_sq_err * exact[i].sum_sq_ref));
    EXPECT_EQ(stats[i].max_abs_err, exact[i].max_abs_err);
    EXPECT_EQ(stats[i].max_abs_ref, exact[i].max_abs_ref);
    EXPECT_EQ(stats[i].max_elem, exact[i].max_elem);
    // Blocks are not cut by regions.
    EXPECT_GE(stats[i].max_block_sq_err * (1 + 1e-6),
              exact[i].max_block_sq_err);
  }
  // A region that cuts cells has the elements that it has.
  EXPECT_EQ(stats.back().count, 64 * 333);
}

TEST_F(LegReducerTest, WhoMeasuredKnewTheScaleOfElements) {
  const RecordSpec spec = PlainSpec("m", DType::kF32, {64, 1024});
  const auto real = Normal(64 * 1024, 1);
  const auto scale_of = [](const Catalog& catalog) {
    return OrDie(
        ElementScaleMeasured(Only(catalog, "real"), Only(catalog, "noise.1")));
  };
  const std::vector<LegValues> legs = {{"real", real},
                                       {"noise.1", Noisy(real, 2)}};
  const auto measured = Record(true, spec, legs);
  const auto squares = OrDie(SumOfSquares(Only(*measured, "real")));
  EXPECT_EQ(scale_of(*measured), ElementScaleOf(squares.sum, squares.count));
  EXPECT_EQ(scale_of(*Record(false, spec, legs)), std::nullopt);

  // Measured against a replay: the run's scale if it has the same values.
  const auto with_replay = [&](const std::vector<float>& replay) {
    return Record(
        true, spec,
        {{"replay", replay}, {"noise.1", Noisy(real, 2)}, {"real", real}});
  };
  EXPECT_TRUE(scale_of(*with_replay(real)).has_value());
  EXPECT_EQ(scale_of(*with_replay(Noisy(real, 7))), std::nullopt);
}

TEST_F(LegReducerTest, MicroBatchesAreMeasuredOneByOne) {
  RecordSpec spec = PlainSpec("m", DType::kF32, {64, 2, 512});
  spec.batch_dim = 1;
  spec.global_shape = {64, 4, 512};
  const auto first = Normal(64 * 1024, 1);
  const auto second = Normal(64 * 1024, 3);
  const std::vector<LegValues> legs = {{"real", first, 0, 0},
                                       {"real", second, 1, 2},
                                       {"noise.1", Noisy(first, 2), 0, 0},
                                       {"noise.1", Noisy(second, 4), 1, 2}};
  const auto kept = Record(false, spec, legs);
  const auto measured = Record(true, spec, legs);
  ASSERT_TRUE(Only(*measured, "noise.1").pieces.back().measured());
  const Layout place = Only(*kept, "real").pieces.front().layout();
  Layout whole = place;
  whole.dims[1].segments = {{0, 4}};
  ExpectEqual(Within(*measured, {whole, place}), Within(*kept, {whole, place}));
}

// A shard of 64 rows on two ranks.
RecordSpec Half() {
  RecordSpec spec;
  spec.fqn = "m";
  spec.local_shape = {32, 1024};
  spec.global_shape = {64, 1024};
  spec.placements = {{"tp", Shard{0}}};
  return spec;
}

std::vector<float> Times(std::vector<float> values, float factor) {
  for (float& x : values) x *= factor;
  return values;
}

TEST_F(LegReducerTest, ShardsAreMeasuredByTheScaleOfTheWhole) {
  // Blocks of the whole do not end where shards do.
  RecordSpec spec = PlainSpec("m", DType::kF32, {64, 1000});
  spec.placements = {{"tp", Shard{1}}};
  spec.global_shape = {64, 2000};
  const auto first = Normal(64 * 1000, 1);
  const auto second = Times(Normal(64 * 1000, 3), 100);
  const std::vector<Part> parts = {
      {spec, {{"real", first}, {"noise.1", Noisy(first, 2)}}},
      {spec, {{"real", second}, {"noise.1", Noisy(second, 4)}}}};
  const auto kept = RecordRanks(false, parts);
  const auto measured = RecordRanks(true, parts);
  ASSERT_TRUE(AllMeasured(*measured));
  ExpectScaleOfAll(*measured);
  Layout whole = Only(*kept, "real").pieces.front().layout();
  whole.dims[1].segments = {{0, 2000}};
  std::vector<Layout> regions = {whole};
  for (int64_t k = 0; k < 5; ++k)
    regions.push_back(Columns(whole, 1, k * 400, 400));
  ExpectEqual(Within(*measured, regions), Within(*kept, regions));
}

TEST_F(LegReducerTest, MicroBatchesOfSeveralRanksAreMeasured) {
  RecordSpec spec = PlainSpec("m", DType::kF32, {32, 1, 512});
  spec.batch_dim = 1;
  spec.global_shape = {32, 4, 512};
  std::vector<Part> parts;
  for (int rank = 0; rank < 2; ++rank) {
    Part& part = parts.emplace_back();
    part.spec = spec;
    for (const char* leg : {"real", "noise.1"}) {
      for (int k = 0; k < 2; ++k) {
        const int row = 2 * rank + k;
        auto values = Times(Normal(32 * 512, static_cast<uint32_t>(row)),
                            static_cast<float>(row + 1));
        if (leg[0] == 'n') values = Noisy(std::move(values), 9);
        part.legs.push_back({leg, std::move(values), k, row});
      }
    }
  }
  const auto kept = RecordRanks(false, parts);
  const auto measured = RecordRanks(true, parts);
  ASSERT_TRUE(AllMeasured(*measured));
  ExpectScaleOfAll(*measured);
  Layout whole = Only(*kept, "real").pieces.front().layout();
  whole.dims[1].segments = {{0, 4}};
  const std::vector<Layout> regions = {whole, Columns(whole, 1, 1, 2)};
  ExpectEqual(Within(*measured, regions), Within(*kept, regions));
}

TEST_F(LegReducerTest, WhatOnlyTheReplayHasIsMeasuredAgainstIt) {
  const RecordSpec spec = Half();
  std::vector<Part> parts;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const auto values = Times(Normal(32 * 1024, rank), rank == 0 ? 1.F : 100.F);
    parts.push_back(
        {spec, {{"replay", values}, {"noise.1", Noisy(values, 5)}}});
  }
  EXPECT_TRUE(AllMeasured(*RecordRanks(true, parts)));
}

TEST_F(LegReducerTest, OfAReplayOthersAreToldWhatTheRunDoesNotHave) {
  const RankMeta meta = TensorParallelMeta(0, 2);
  EXPECT_TRUE(TellsOfLast(meta, Half(), {"replay"}));
  EXPECT_FALSE(TellsOfLast(meta, Half(), {"real", "replay"}));
}

TEST_F(LegReducerTest, OfTermsOthersAreToldNothing) {
  RankMeta meta = TensorParallelMeta(0, 4);
  meta.mesh.dims = {{"dp", 2}, {"tp", 2}};
  meta.coordinate = {0, 0};
  RecordSpec spec = Half();
  EXPECT_TRUE(TellsOfLast(meta, spec, {"real"}));
  spec.placements.emplace_back("dp", Partial{});
  EXPECT_FALSE(TellsOfLast(meta, spec, {"real"}));
}

TEST_F(LegReducerTest, ShardsOfWhichNothingIsToldKeepTheirValues) {
  const RecordSpec spec = Half();
  const auto values = Normal(32 * 1024, 1);
  const Part part = {spec, {{"real", values}, {"noise.1", Noisy(values, 2)}}};
  EXPECT_TRUE(AllMeasured(*RecordRanks(true, {part, part})));
  const auto untold = RecordRanks(true, {part, part}, false);
  const TensorPieces& noisy = Only(*untold, "noise.1");
  for (const auto& piece : noisy.pieces) EXPECT_FALSE(piece.measured());
  std::vector<float> read(values.size());
  OrDie(untold->trace().Read(noisy.pieces.front(), 0,
                             std::as_writable_bytes(std::span(read))));
  EXPECT_EQ(read, Noisy(values, 2));
}

TEST_F(LegReducerTest, WhatIsRepeatedBitByBitIsThereOnce) {
  const RecordSpec spec = PlainSpec("m", DType::kF32, {64, 1024});
  const auto real = Normal(64 * 1024, 1);
  auto other = real;
  other.back() += 1;
  const auto catalog =
      Record(true, spec, {{"real", real}, {"replay", real}, {"noise.1", real}});
  for (const char* leg : {"replay", "noise.1"}) {
    const auto& piece = Only(*catalog, leg).pieces.front();
    EXPECT_EQ(piece.same_as(),
              Only(*catalog, "real").pieces.front().sequence());
    std::vector<float> values(real.size());
    OrDie(catalog->trace().Read(piece, 0,
                                std::as_writable_bytes(std::span(values))));
    EXPECT_EQ(values, real);
  }
  const auto differs = Record(true, spec, {{"real", real}, {"replay", other}});
  const auto& piece = Only(*differs, "replay").pieces.front();
  EXPECT_FALSE(piece.same_as());
  EXPECT_FALSE(piece.measured());
  std::vector<float> values(real.size());
  OrDie(differs->trace().Read(piece, 0,
                              std::as_writable_bytes(std::span(values))));
  EXPECT_EQ(values, other);
}

TEST_F(LegReducerTest, OnlyTheDifferenceIsNoValue) {
  const RecordSpec spec = PlainSpec("m", DType::kF32, {64, 1024});
  const auto real = Normal(64 * 1024, 1);
  const auto catalog =
      Record(true, spec, {{"real", real}, {"noise.1", Noisy(real, 2)}});
  const auto& piece = Only(*catalog, "noise.1").pieces.front();
  std::byte byte;
  const Status read = catalog->trace().Read(piece, 0, {&byte, 1});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), ErrorCode::kIncomparable);
  EXPECT_THAT(read.error().message(), HasSubstr("noise.1"));
  const auto compared =
      CompareTensor(Only(*catalog, "real"), Only(*catalog, "noise.1"));
  ASSERT_FALSE(compared.ok());
  EXPECT_EQ(compared.error().code(), ErrorCode::kIncomparable);
}

TEST_F(LegReducerTest, ValuesAreKeptOfWhatOneRankCannotJudge) {
  const auto real = Normal(64 * 1024, 1);
  const std::vector<LegValues> legs = {{"real", real},
                                       {"noise.1", Noisy(real, 2)}};
  const auto is_measured = [&](const RecordSpec& spec, const RankMeta& meta) {
    const auto catalog = Record(true, spec, legs, meta);
    return Only(*catalog, "noise.1").pieces.front().measured().has_value();
  };
  RecordSpec spec = PlainSpec("m", DType::kF32, {64, 1024});
  EXPECT_TRUE(is_measured(spec, TensorParallelMeta(0, 1)));
  EXPECT_TRUE(is_measured(spec, TensorParallelMeta(0, 2))) << "a copy";
  spec.placements = {{"tp", Partial{}}};
  EXPECT_TRUE(is_measured(spec, TensorParallelMeta(0, 1))) << "its only term";
  EXPECT_FALSE(is_measured(spec, TensorParallelMeta(0, 2))) << "a term";
  spec.placements = {{"tp", Shard{0}}};
  spec.global_shape = {128, 1024};
  EXPECT_FALSE(is_measured(spec, TensorParallelMeta(0, 2)))
      << "a shard of which other ranks say nothing";
}

TEST_F(LegReducerTest, TermsInMicroBatchesKeepTheirValues) {
  RecordSpec spec = PlainSpec("m", DType::kF32, {64, 1, 512});
  spec.batch_dim = 1;
  spec.global_shape = {64, 2, 512};
  const auto first = Normal(64 * 512, 1);
  const auto second = Normal(64 * 512, 3);
  const std::vector<LegValues> legs = {{"real", first, 0, 0},
                                       {"real", second, 1, 1},
                                       {"noise.1", Noisy(first, 2), 0, 0},
                                       {"noise.1", Noisy(second, 4), 1, 1}};
  const RankMeta meta = TensorParallelMeta(0, 2);
  EXPECT_TRUE(AllMeasured(*Record(true, spec, legs, meta)));
  spec.placements = {{"tp", Partial{}}};
  EXPECT_FALSE(AllMeasured(*Record(true, spec, legs, meta)));
}

TEST_F(LegReducerTest, OnlyWhatALegWillBeMeasuredAgainstIsKeptInMind) {
  const RankMeta meta = TensorParallelMeta(0, 1);
  const auto is_base = [&](const std::vector<Leg>& legs, const Leg& leg,
                           int64_t elements) {
    struct RecordFields record;
    record.leg = leg;
    record.dtype = DType::kF32;
    record.layout.dims = {{{{0, elements}}, elements}};
    return MakeLegReducer(meta, legs)->IsBase(record);
  };
  EXPECT_TRUE(is_base({"noise.1"}, "real", 1 << 20));
  EXPECT_TRUE(is_base({"isolated.noise.2"}, "replay", 1 << 20));
  EXPECT_FALSE(is_base({"replay", "fp32", "isolated"}, "real", 1 << 20));
  EXPECT_FALSE(is_base({"noise.1"}, "fp32", 1 << 20));
  EXPECT_TRUE(is_base({"fp32.noise.1"}, "fp32", 1 << 20));
  EXPECT_FALSE(is_base({"noise.1"}, "real", 100)) << "too small";
}

TEST_F(LegReducerTest, NaNIsCounted) {
  const RecordSpec spec = PlainSpec("m", DType::kF32, {64, 1024});
  const auto real = Normal(64 * 1024, 1);
  auto noisy = Noisy(real, 2);
  noisy[5000] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<LegValues> legs = {{"real", real}, {"noise.1", noisy}};
  const auto kept = Record(false, spec, legs);
  const auto measured = Record(true, spec, legs);
  const Layout whole = Only(*kept, "real").pieces.front().layout();
  const auto stats = Within(*measured, {whole});
  ExpectEqual(stats, Within(*kept, {whole}));
  EXPECT_EQ(stats.front().nonfinite_cand, 1);
  EXPECT_EQ(stats.front().nonfinite_differ, 1);
}

}  // namespace
}  // namespace ttrace::leg_reducer_test
