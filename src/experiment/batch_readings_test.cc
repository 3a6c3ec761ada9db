#include "src/experiment/batch_readings.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::batch_readings_test {
namespace {

constexpr int64_t kRows = 8;
constexpr int64_t kWidth = 3;

// What a run says of one value of a batch of eight rows: a piece for each rank
// of dp and each of its micro-batches.
struct Said {
  int dp = 1;
  int micro_batches = 1;
  Shape local = {};               // without a row dimension of its own
  bool has_rows = false;          // said to be rows
  int dim = 0;                    // of this dimension
  int only_rank = -1;             // if set, no other one says so
  std::vector<float> terms = {};  // of each piece: what all its elements hold
  bool counts = false;      // elements hold their place in the batch instead
  bool last_first = false;  // the rows of each piece the other way round
};

class RecordedRun {
 public:
  explicit RecordedRun(const Said& said) {
    OrDie(CreateTraceFolder(folder_.path(), "{}", true));
    for (int rank = 0; rank < said.dp; ++rank) Write(said, rank);
    side_ = std::make_unique<Side>(OrDie(Side::Open(folder_.path(), {})));
  }
  Side* side() { return side_.get(); }

 private:
  void Write(const Said& said, int rank) {
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = said.dp;
    meta.mesh.dims = {{"dp", said.dp}};
    meta.coordinate = {rank};
    const auto writer = OrDie(TraceWriter::Open(folder_.path(), meta));
    const int64_t rows = kRows / said.dp / said.micro_batches;
    for (int i = 0; i < said.micro_batches; ++i) {
      const int micro_batch = rank * said.micro_batches + i;
      const int64_t begin = micro_batch * rows;
      RecordSpec fed;
      fed.role = Role::kInput;
      fed.arg = "tokens";
      fed.local_shape = {rows, 1};
      fed.global_shape = {kRows, 1};
      fed.batch_dim = 0;
      Put(*writer, fed, micro_batch, begin,
          std::vector<float>(static_cast<size_t>(rows), 1));
      RecordSpec value;
      value.fqn = "layer";
      value.arg = "0";
      value.local_shape = value.global_shape = said.local;
      const bool has_rows =
          said.has_rows && (said.only_rank < 0 || said.only_rank == rank);
      if (has_rows) {
        value.batch_dim = said.dim;
        value.global_shape[static_cast<size_t>(said.dim)] = kRows;
      }
      int64_t elements = 1;
      for (const int64_t size : said.local) elements *= size;
      const auto count = static_cast<size_t>(elements);
      const auto width = static_cast<size_t>(said.local.back());
      std::vector<float> values(count, 1);
      if (said.counts) {
        for (size_t k = 0; k < count; ++k) {
          size_t place = k;
          if (said.last_first) {
            place = count - width - k / width * width + k % width;
          }
          values[k] = static_cast<float>(
              static_cast<size_t>(micro_batch) * count + place);
        }
      }
      Put(*writer, value, micro_batch, begin, values);
      value.role = Role::kGradOutput;
      if (!has_rows) {
        value.placements = {{"mb", Partial{}}, {"dp", Partial{}}};
      }
      if (!said.terms.empty())
        values.assign(count, said.terms[static_cast<size_t>(micro_batch)]);
      Put(*writer, value, micro_batch, begin, values);
      RecordSpec sum;
      sum.fqn = "layer.weight";
      sum.role = Role::kGradLocal;
      sum.local_shape = sum.global_shape = {1, 1};
      sum.placements = {{"mb", Partial{}}, {"dp", Partial{}}};
      Put(*writer, sum, micro_batch, begin, {1});
    }
    OrDie(writer->Seal(0, "real"));
    OrDie(writer->Close(true, ""));
  }

  static void Put(TraceWriter& writer, const RecordSpec& spec, int micro_batch,
                  int64_t row, const std::vector<float>& values) {
    Occurrence at;
    at.leg = "real";
    at.micro_batch = micro_batch;
    at.row_begin = spec.batch_dim >= 0 ? row : 0;
    if (spec.role != Role::kInput && spec.role != Role::kOutput) {
      at.pass = Pass::kBackward;
    }
    OrDie(writer.Append(spec, at,
                        {reinterpret_cast<const std::byte*>(values.data()),
                         RowMajorStrides(spec.local_shape)}));
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

TensorId Gradient() {
  TensorId id = Output();
  id.role = Role::kGradOutput;
  id.pass = Pass::kBackward;
  return id;
}

TensorComparison Compare(RecordedRun& a, RecordedRun& b, const TensorId& id) {
  return OrDie(
      CompareTensor(*a.side()->Find("real", id), *b.side()->Find("real", id)));
}

TEST(ResolveBatchDim, FlattenedRowsAreRows) {
  // Five elements a row on both sides.
  RecordedRun reference({.local = {40, kWidth}, .counts = true});
  RecordedRun candidate(
      {.dp = 2, .micro_batches = 2, .local = {10, kWidth}, .counts = true});
  EXPECT_TRUE(
      ResolveBatchDim(reference.side(), candidate.side(), {}).unknown.empty());
  for (const TensorId& id : {Output(), Gradient()}) {
    const TensorComparison compared = Compare(reference, candidate, id);
    EXPECT_TRUE(compared.complete());
    EXPECT_EQ(compared.total.count, 40 * kWidth);
    EXPECT_EQ(compared.total.mismatched, 0);
  }
}

TEST(ResolveBatchDim, FlattenedRowsInAnOrderOfTheirOwnAreUnknown) {
  Said whole = {.local = {40, 16}, .counts = true, .last_first = true};
  Said parts = {.dp = 2,
                .micro_batches = 2,
                .local = {10, 16},
                .counts = true,
                .last_first = true};
  RecordedRun reference(whole);
  RecordedRun candidate(parts);
  const std::set<TensorId> unknown =
      ResolveBatchDim(reference.side(), candidate.side(), {}).unknown;
  EXPECT_EQ(unknown.count(Output()), 1u);
  EXPECT_EQ(unknown.count(Gradient()), 1u);
  // Of other values the order is that of the batch, and they are wrong.
  parts.counts = false;
  RecordedRun wrong(parts);
  EXPECT_TRUE(ResolveBatchDim(RecordedRun(whole).side(), wrong.side(), {})
                  .unknown.empty());
}

TEST(ResolveBatchDim, FlattenedRowsThatVaryAreRowsThoughShapesAgree) {
  RecordedRun reference(
      {.micro_batches = 4, .local = {10, kWidth}, .counts = true});
  RecordedRun candidate(
      {.dp = 2, .micro_batches = 2, .local = {10, kWidth}, .counts = true});
  EXPECT_TRUE(
      ResolveBatchDim(reference.side(), candidate.side(), {}).unknown.empty());
  const TensorComparison compared = Compare(reference, candidate, Output());
  EXPECT_EQ(compared.total.count, 40 * kWidth);
  EXPECT_EQ(compared.total.mismatched, 0);
}

TEST(ResolveBatchDim, AnotherDimensionMayHaveTheNumberOfRowsByChance) {
  constexpr int64_t kFive = 5;
  Said flat = {.local = {kFive * kRows, kWidth}, .counts = true};
  RecordedRun reference(flat);
  flat.local = {kFive * kRows / 2, kWidth};
  flat.dp = 2;
  flat.has_rows = true;
  flat.dim = 1;
  RecordedRun candidate(flat);
  EXPECT_TRUE(
      ResolveBatchDim(reference.side(), candidate.side(), {}).unknown.empty());
  const TensorComparison compared = Compare(reference, candidate, Output());
  EXPECT_TRUE(compared.complete());
  EXPECT_EQ(compared.total.mismatched, 0);
}

TEST(ResolveBatchDim, WhatIsTheSameForAllRowsMayHaveTheirNumberByChance) {
  // [1, width] beside one row, [1, width] beside eight.
  RecordedRun reference({.local = {1, kWidth}, .terms = {8}});
  RecordedRun candidate({.dp = 2,
                         .micro_batches = 4,
                         .local = {1, kWidth},
                         .has_rows = true,
                         .terms = {1, 1, 2, 0, 1, 1, 1, 1}});
  EXPECT_TRUE(
      ResolveBatchDim(reference.side(), candidate.side(), {}).unknown.empty());
  const TensorComparison value = Compare(reference, candidate, Output());
  EXPECT_TRUE(value.complete());
  EXPECT_EQ(value.total.count, kWidth);
  EXPECT_EQ(value.total.mismatched, 0);
  // Its gradient is the sum of the micro-batches'.
  const TensorComparison gradient = Compare(reference, candidate, Gradient());
  EXPECT_EQ(gradient.total.count, kWidth);
  EXPECT_EQ(gradient.total.mismatched, 0);
}

TEST(ResolveBatchDim, EachRunMayTakeAnotherDimensionForTheRows) {
  // Eight positions beside eight rows, four heads beside four.
  RecordedRun reference({.local = {8, 4}, .has_rows = true, .terms = {2}});
  RecordedRun candidate(
      {.dp = 2, .local = {8, 4}, .has_rows = true, .dim = 1, .terms = {1, 1}});
  EXPECT_TRUE(
      ResolveBatchDim(reference.side(), candidate.side(), {}).unknown.empty());
  for (const TensorId& id : {Output(), Gradient()}) {
    const TensorComparison compared = Compare(reference, candidate, id);
    EXPECT_TRUE(compared.complete());
    EXPECT_EQ(compared.total.count, 8 * 4);
    EXPECT_EQ(compared.total.mismatched, 0);
  }
}

// Where ranks have other numbers of rows, one of them has that many by chance.
TEST(ResolveBatchDim, RanksThatDisagreeHoldNoRows) {
  RecordedRun reference({.local = {4, kWidth}, .terms = {3}});
  const Said said = {.dp = 2,
                     .local = {4, kWidth},
                     .has_rows = true,
                     .only_rank = 1,
                     .terms = {1, 2}};
  RecordedRun candidate(said);
  EXPECT_TRUE(
      ResolveBatchDim(reference.side(), candidate.side(), {}).unknown.empty());
  EXPECT_EQ(Compare(reference, candidate, Output()).total.mismatched, 0);
  EXPECT_EQ(Compare(reference, candidate, Gradient()).total.mismatched, 0);
  // Values that differ between ranks are of their rows all the same.
  Said own = said;
  own.counts = true;
  RecordedRun varies(own);
  EXPECT_TRUE(ResolveBatchDim(reference.side(), varies.side(), {})
                  .unknown.contains(Output()));
}

TEST(ResolveBatchDim, WhatNeitherExplainsIsUnknown) {
  RecordedRun reference({.local = {9, kWidth}});
  RecordedRun candidate({.dp = 2, .local = {7, kWidth}});
  const std::set<TensorId> unknown =
      ResolveBatchDim(reference.side(), candidate.side(), {}).unknown;
  EXPECT_TRUE(unknown.contains(Output()));
  EXPECT_TRUE(unknown.contains(Gradient()));
}

TEST(ResolveBatchDim, AMeanOverTheRowsOfOtherMicroBatchesIsUnknown) {
  RecordedRun reference({.local = {1, kWidth}, .counts = true});
  RecordedRun candidate({.dp = 2, .local = {1, kWidth}, .counts = true});
  EXPECT_TRUE(ResolveBatchDim(reference.side(), candidate.side(), {})
                  .unknown.contains(Output()));
  // Of the same micro-batches each has its own.
  RecordedRun alike({.micro_batches = 2, .local = {1, kWidth}, .counts = true});
  EXPECT_TRUE(
      ResolveBatchDim(alike.side(), candidate.side(), {}).unknown.empty());
  EXPECT_EQ(Compare(alike, candidate, Output()).total.mismatched, 0);
}

TEST(ResolveBatchDim, OtherShapesOfEqualBatchesStayAFinding) {
  RecordedRun reference({.dp = 2, .local = {9, kWidth}});
  RecordedRun candidate({.dp = 2, .local = {7, kWidth}});
  EXPECT_TRUE(
      ResolveBatchDim(reference.side(), candidate.side(), {}).unknown.empty());
  EXPECT_NE(reference.side()->Find("real", Output())->global_shape(),
            candidate.side()->Find("real", Output())->global_shape());
}

TEST(ResolveBatchDim, WhatBothSayAlikeStaysAsItIs) {
  RecordedRun reference(
      {.local = {kRows, kWidth}, .has_rows = true, .counts = true});
  RecordedRun candidate({.dp = 2,
                         .local = {kRows / 2, kWidth},
                         .has_rows = true,
                         .counts = true});
  EXPECT_TRUE(
      ResolveBatchDim(reference.side(), candidate.side(), {}).unknown.empty());
  EXPECT_EQ(Compare(reference, candidate, Output()).total.mismatched, 0);
}

}  // namespace
}  // namespace ttrace::batch_readings_test
