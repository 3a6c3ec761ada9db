#include "src/experiment/fed_dimensions.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/experiment/batch_readings.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::fed_dimensions_test {
namespace {

// A micro-batch of tokens, padded by 0 to one length, on a rank of its own.
using Tokens = std::vector<std::vector<int64_t>>;

// What a layer makes of them: `width` numbers a token.
struct Layer {
  bool flat = false;        // rows and places are one dimension
  bool batch_last = false;  // (place, row)
  bool mean = false;        // one number for the whole micro-batch
  bool sum = false;         // the same, a sum over its rows
  float wrong = 0;          // added to the last token of each row
};

class FedRun {
 public:
  FedRun(const std::vector<Tokens>& micro_batches, const Layer& layer) {
    OrDie(CreateTraceFolder(folder_.path(), "{}", true));
    const int ranks = static_cast<int>(micro_batches.size());
    for (int rank = 0; rank < ranks; ++rank) {
      RankMeta meta;
      meta.rank = rank;
      meta.world_size = ranks;
      meta.mesh.dims = {{"dp", ranks}};
      meta.coordinate = {rank};
      const auto writer = OrDie(TraceWriter::Open(folder_.path(), meta));
      Write(*writer, rank, micro_batches[static_cast<size_t>(rank)], layer);
      OrDie(writer->Seal(0, "real"));
      OrDie(writer->Close(true, ""));
    }
    side_ = std::make_unique<Side>(OrDie(Side::Open(folder_.path(), {})));
  }
  Side* side() { return side_.get(); }

 private:
  void Write(TraceWriter& writer, int micro_batch, const Tokens& tokens,
             const Layer& layer) {
    const auto rows = static_cast<int64_t>(tokens.size());
    const auto length = static_cast<int64_t>(tokens.front().size());
    const std::string where = fmt::format(
        R"("fed":"","iteration":0,"micro_batch":{},"call":0)", micro_batch);
    OrDie(writer.Note("fed_call",
                      fmt::format(R"({{{},"rows":{}}})", where, rows)));
    std::vector<int64_t> all;
    for (const auto& row : tokens)
      all.insert(all.end(), row.begin(), row.end());
    const RowDigests digests =
        DigestRows(std::as_bytes(std::span(all)), tokens.size(), 8);
    OrDie(writer.Note(
        "fed_rows",
        fmt::format(R"({{{},"arg":"x","dim":0,"rows":{},"width":{},)"
                    R"("whole":"{}","without_end":"{}","without_begin":"{}"}})",
                    where, rows, length, DigestText(digests.whole),
                    DigestText(digests.without_end),
                    DigestText(digests.without_begin))));
    constexpr int64_t kWidth = 2;
    if (layer.sum) PutInput(writer, micro_batch, rows);
    RecordSpec value;
    value.fqn = "layer";
    value.arg = "0";
    value.local_shape = layer.flat         ? Shape{rows * length, kWidth}
                        : layer.batch_last ? Shape{length, rows, kWidth}
                                           : Shape{rows, length, kWidth};
    if (layer.mean || layer.sum) value.local_shape = {kWidth};
    value.global_shape = value.local_shape;
    std::vector<float> values;
    const auto put = [&](int64_t r, int64_t t) {
      const int64_t token =
          tokens[static_cast<size_t>(r)][static_cast<size_t>(t)];
      const bool last =
          token != 0 &&
          (t + 1 == length ||
           tokens[static_cast<size_t>(r)][static_cast<size_t>(t + 1)] == 0);
      for (int64_t w = 0; w < kWidth; ++w) {
        values.push_back(static_cast<float>(10 * token + w) +
                         (last ? layer.wrong : 0));
      }
    };
    if (layer.mean) {
      values = {1, 2};
    } else if (layer.sum) {
      values = {0, 0};
      for (const auto& row : tokens) {
        values[0] += static_cast<float>(row.front());
      }
    } else if (layer.batch_last) {
      for (int64_t t = 0; t < length; ++t) {
        for (int64_t r = 0; r < rows; ++r) put(r, t);
      }
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t t = 0; t < length; ++t) put(r, t);
      }
    }
    Occurrence at;
    at.leg = "real";
    at.micro_batch = micro_batch;
    OrDie(writer.Append(value, at,
                        {reinterpret_cast<const std::byte*>(values.data()),
                         RowMajorStrides(value.local_shape)}));
  }

  // Of two micro-batches of as many rows: where they lie.
  static void PutInput(TraceWriter& writer, int micro_batch, int64_t rows) {
    RecordSpec input;
    input.role = Role::kInput;
    input.arg = "x";
    input.local_shape = {rows};
    input.global_shape = {2 * rows};
    input.batch_dim = 0;
    const std::vector<float> values(static_cast<size_t>(rows), 1);
    Occurrence at;
    at.leg = "real";
    at.micro_batch = micro_batch;
    at.row_begin = micro_batch * rows;
    OrDie(writer.Append(input, at,
                        {reinterpret_cast<const std::byte*>(values.data()),
                         RowMajorStrides(input.local_shape)}));
  }

  ScratchFolder folder_;
  std::unique_ptr<Side> side_;
};

TensorId Output() {
  TensorId id;
  id.fqn = "layer";
  id.arg = "0";
  return id;
}

struct Outcome {
  TensorComparison compared;
  BatchReadings read;
};

Outcome Compare(FedRun& reference, FedRun& candidate) {
  const RowAlignment rows =
      OrDie(FindRows(*reference.side(), *candidate.side()));
  Outcome out;
  out.read = ResolveBatchDim(reference.side(), candidate.side(), rows);
  const TensorPieces& pieces = *candidate.side()->Find("real", Output());
  out.compared = OrDie(
      CompareTensor(*reference.side()->Find("real", Output()), pieces,
                    rows.OptionsFor(*candidate.side(), Output(), pieces)));
  return out;
}

const std::vector<Tokens> kWhole = {
    {{1, 2, 3, 0}, {4, 5, 6, 7}, {8, 9, 0, 0}, {3, 1, 2, 0}}};
// Dealt in turn, each rank's padded to its own longest row.
const std::vector<Tokens> kDealt = {{{1, 2, 3}, {8, 9, 0}},
                                    {{4, 5, 6, 7}, {3, 1, 2, 0}}};
const std::vector<Tokens> kFromLeft = {
    {{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 0, 8, 9}, {0, 3, 1, 2}}};
const std::vector<Tokens> kDealtFromLeft = {{{1, 2, 3}, {0, 8, 9}},
                                            {{4, 5, 6, 7}, {0, 3, 1, 2}}};

TEST(FedDimensions, RowsThatWereDealtAndPaddedOtherwiseAreCompared) {
  for (const bool flat : {false, true}) {
    FedRun reference(kWhole, {.flat = flat});
    FedRun candidate(kDealt, {.flat = flat});
    const Outcome out = Compare(reference, candidate);
    EXPECT_EQ(out.compared.total.mismatched, 0) << "flat=" << flat;
    // All but the last place of two rows, which one run has not.
    EXPECT_EQ(out.compared.total.count, 28) << "flat=" << flat;
    EXPECT_TRUE(out.read.padded.contains(Output()));
  }
}

TEST(FedDimensions, PaddingMayComeFirst) {
  FedRun reference(kFromLeft, {});
  FedRun candidate(kDealtFromLeft, {});
  const Outcome out = Compare(reference, candidate);
  EXPECT_EQ(out.compared.total.mismatched, 0);
  EXPECT_EQ(out.compared.total.count, 28);
}

TEST(FedDimensions, AWrongTokenOfAPaddedRowIsFound) {
  for (const bool flat : {false, true}) {
    FedRun reference(kWhole, {.flat = flat});
    FedRun candidate(kDealt, {.flat = flat, .wrong = 1});
    EXPECT_EQ(Compare(reference, candidate).compared.total.mismatched, 8);
  }
}

TEST(FedDimensions, TheBatchMayBeTheSecondDimension) {
  FedRun reference(kWhole, {.batch_last = true});
  FedRun candidate(kDealt, {.batch_last = true});
  const Outcome out = Compare(reference, candidate);
  EXPECT_EQ(out.compared.total.mismatched, 0);
  EXPECT_EQ(out.compared.total.count, 28);
}

// Of as many micro-batches each has its own, as long as rows stay in them.
TEST(FedDimensions, ASumOverRowsThatWereDealtOtherwiseIsUnknown) {
  const std::vector<Tokens> whole = {{{1, 2}, {3, 4}, {9, 9}},
                                     {{5, 6}, {7, 8}, {4, 4}}};
  const std::vector<Tokens> turned = {{{3, 4}, {1, 2}, {9, 9}},
                                      {{5, 6}, {7, 8}, {4, 4}}};
  const std::vector<Tokens> dealt = {{{1, 2}, {5, 6}, {9, 9}},
                                     {{3, 4}, {7, 8}, {4, 4}}};
  for (const auto& own : {whole, turned, dealt}) {
    FedRun reference(whole, {.sum = true});
    FedRun candidate(own, {.sum = true});
    EXPECT_EQ(Compare(reference, candidate).read.unknown.contains(Output()),
              own == dealt);
  }
}

TEST(FedDimensions, WhatHasNoRowsIsTheSameForAll) {
  FedRun reference(kWhole, {.mean = true});
  FedRun candidate(kDealt, {.mean = true});
  const Outcome out = Compare(reference, candidate);
  EXPECT_EQ(out.compared.total.mismatched, 0);
  EXPECT_FALSE(out.read.padded.contains(Output()));
}

}  // namespace
}  // namespace ttrace::fed_dimensions_test
