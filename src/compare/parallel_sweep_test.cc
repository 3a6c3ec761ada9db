// One large pair, compared by many threads: nothing may tell how many.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/base/for_each.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/testing/error_fields.h"
#include "src/compare/testing/sharded_trace.h"
#include "src/numeric/narrow.h"

namespace ttrace::parallel_sweep_test {
namespace {

const Shape kLarge = {1024, 1536};
constexpr size_t kLargeCount = size_t{1024} * 1536;

std::vector<double> Reals(unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(kLargeCount);
  for (double& value : values) value = normal(rng);
  return values;
}

std::vector<double> Near(const std::vector<double>& values) {
  std::mt19937 rng(7);
  std::normal_distribution<double> normal;
  std::vector<double> out = values;
  for (double& value : out) value += 1e-3 * normal(rng);
  return out;
}

// On one rank, in a dtype that ShardedTrace does not write.
class WholeTrace {
 public:
  WholeTrace(const std::vector<double>& values, DType dtype) {
    OrDie(CreateTraceFolder(folder_.path(), "{}", true));
    const auto writer = OpenRank(folder_.path(), 0, 1);
    const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
    std::vector<std::byte> bytes(values.size() * itemsize);
    for (size_t i = 0; i < values.size(); ++i) {
      Narrow(dtype, values[i], bytes.data() + i * itemsize);
    }
    const std::vector<int64_t> strides = RowMajorStrides(kLarge);
    OrDie(writer->Append(PlainSpec("layer", dtype, kLarge), RealOccurrence(),
                         {bytes.data(), strides}));
    OrDie(writer->Seal(0, "real"));
    OrDie(writer->Close(true, ""));
    catalog_ = std::make_unique<Catalog>(OrDie(Trace::Open(folder_.path())));
  }
  TensorPieces pieces() const {
    return catalog_->tensors("real").begin()->second;
  }

 private:
  ScratchFolder folder_;
  std::unique_ptr<Catalog> catalog_;
};

Sharding Along(const std::string& dim, int size, Placement placement) {
  Sharding s;
  s.mesh.dims = {{dim, size}};
  s.placements = {{dim, std::move(placement)}};
  return s;
}

std::vector<std::vector<double>> AllFields(const TensorComparison& c) {
  std::vector<std::vector<double>> out = {FieldsOf(c.total)};
  for (const InstanceStats& instance : c.instances) {
    out.push_back(FieldsOf(instance.stats));
  }
  return out;
}

// Whatever the threads and tiles. Gives what it was.
TensorComparison ExpectAlwaysTheSame(const TensorPieces& ref,
                                     const TensorPieces& cand) {
  CompareOptions options;
  options.element_scale = 1.0 / 4;
  const TensorComparison want = OrDie(CompareTensor(ref, cand, options));
  EXPECT_EQ(want.total.count, static_cast<int64_t>(kLargeCount));
  const SquareSum squares = OrDie(SumOfSquares(cand));
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t tile : {1 << 10, 1 << 13, 1 << 16, 1 << 18}) {
      SCOPED_TRACE(std::to_string(threads) + " threads, tiles of " +
                   std::to_string(tile));
      options.tile_elements = tile;
      TensorComparison got;
      SquareSum own;
      std::vector<ErrorStats> within;
      OrDie(ForEach(threads, 3, [&](size_t i) -> Status {
        if (i == 0) {
          TTRACE_ASSIGN_OR_RETURN(got, CompareTensor(ref, cand, options));
        } else if (i == 1) {
          TTRACE_ASSIGN_OR_RETURN(own, SumOfSquares(cand));
        } else {
          TTRACE_ASSIGN_OR_RETURN(
              within, CompareWithin(ref, cand, want.regions, options));
        }
        return Done{};
      }));
      EXPECT_EQ(AllFields(got), AllFields(want));
      EXPECT_EQ(own.count, squares.count);
      EXPECT_TRUE(own.sum == squares.sum ||
                  (std::isnan(own.sum) && std::isnan(squares.sum)));
      if (within.size() != want.regions.size()) {
        ADD_FAILURE() << within.size() << " regions";
        continue;
      }
      ErrorStats total;
      for (const ErrorStats& region : within) total.Merge(region);
      EXPECT_EQ(total.count, want.total.count);
      EXPECT_EQ(total.mismatched, want.total.mismatched);
      EXPECT_EQ(total.max_abs_err, want.total.max_abs_err);
      EXPECT_EQ(total.max_elem, want.total.max_elem);
    }
  }
  return want;
}

TEST(ParallelSweep, OfAWholeTensor) {
  const std::vector<double> a = Reals(1);
  const ShardedTrace ref(kLarge, a, kWhole);
  const ShardedTrace cand(kLarge, Near(a), kWhole);
  const TensorComparison got = ExpectAlwaysTheSame(ref.pieces(), cand.pieces());
  EXPECT_NEAR(got.total.rel_err(), 1e-3, 1e-5);
}

TEST(ParallelSweep, OfShardsThatLieApart) {
  const std::vector<double> a = Reals(2);
  const std::vector<double> b = Near(a);
  const ShardedTrace whole(kLarge, a, kWhole);
  const ShardedTrace columns(kLarge, b, Along("tp", 3, Shard{1}));
  const ShardedTrace rows(kLarge, b, Along("tp", 2, ZigzagShard{0}));
  const TensorComparison by_columns =
      ExpectAlwaysTheSame(whole.pieces(), columns.pieces());
  const TensorComparison by_rows =
      ExpectAlwaysTheSame(rows.pieces(), columns.pieces());
  EXPECT_EQ(by_columns.instances.size(), 3U);
  EXPECT_NEAR(by_columns.total.rel_err(), 1e-3, 1e-5);
  EXPECT_EQ(by_rows.total.mismatched, 0);
}

TEST(ParallelSweep, OfSumsOverRanks) {
  const std::vector<double> a = Reals(3);
  const ShardedTrace whole(kLarge, a, kWhole);
  const ShardedTrace terms(kLarge, Near(a), Along("dp", 2, Partial{}));
  const TensorComparison got =
      ExpectAlwaysTheSame(whole.pieces(), terms.pieces());
  EXPECT_NEAR(got.total.rel_err(), 1e-3, 1e-5);
}

TEST(ParallelSweep, OfBf16AgainstFp32) {
  const std::vector<double> a = Reals(4);
  const WholeTrace low(a, DType::kBF16);
  const WholeTrace high(a, DType::kF32);
  const TensorComparison got = ExpectAlwaysTheSame(high.pieces(), low.pieces());
  EXPECT_GT(got.total.rel_err(), 1e-4);
  EXPECT_LT(got.total.rel_err(), 3e-3);
}

TEST(ParallelSweep, WithNaNInTheMiddleAndTheWorstElementInTheLastTile) {
  const std::vector<double> a = Reals(5);
  std::vector<double> b = Near(a);
  b[kLargeCount / 2] = std::numeric_limits<double>::quiet_NaN();
  b[kLargeCount / 3] = std::numeric_limits<double>::infinity();
  b[kLargeCount - 2] = a[kLargeCount - 2] + 100;
  const ShardedTrace ref(kLarge, a, kWhole);
  const ShardedTrace cand(kLarge, b, Along("tp", 2, Shard{1}));
  const TensorComparison got = ExpectAlwaysTheSame(ref.pieces(), cand.pieces());
  EXPECT_EQ(got.total.nonfinite_cand, 2);
  EXPECT_NEAR(got.total.max_abs_err, 100, 1e-3);
}

// What is said of a damaged tensor, and of which, is what one thread says.
TEST(ParallelSweep, OfDamagedBytesNamesTheSameTensors) {
  const std::vector<double> a = Reals(6);
  const std::vector<double> b = Near(a);
  std::vector<std::string> seen;
  for (const int threads : {1, 2, 8}) {
    const ShardedTrace ref(kLarge, a, kWhole);
    const ShardedTrace cand(kLarge, b, Along("tp", 2, Shard{1}));
    for (const auto* trace : {&ref, &cand}) {
      const Extent extent = trace->pieces().pieces.front().extent();
      SetFileByte(trace->folder() + "/" + RankFolderName({0, 0}) + "/" +
                      SegmentFileName(extent.segment),
                  static_cast<size_t>(extent.offset + extent.bytes / 2), 0x55);
    }
    const TensorPieces r = ref.pieces();
    const TensorPieces c = cand.pieces();
    const Status status = ForEach(threads, 1, [&](size_t) -> Status {
      const auto got = CompareTensor(r, c);
      return got.ok() ? Status(Done{}) : Status(got.error());
    });
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kCorrupt);
    std::string text;
    for (const auto* pieces : {&r, &c}) {
      for (const DamagedRecord& one : pieces->trace->damaged()) {
        text += (pieces == &r ? "reference " : "candidate ") +
                std::to_string(one.record.number()) + "\n";
      }
    }
    seen.push_back(text);
  }
  EXPECT_EQ(seen[0], "reference 0\ncandidate 0\n");
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
}

}  // namespace
}  // namespace ttrace::parallel_sweep_test
