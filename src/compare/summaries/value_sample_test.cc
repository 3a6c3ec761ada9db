#include "src/compare/summaries/value_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/summaries/tensor_summary.h"
#include "src/compare/testing/sharded_trace.h"

namespace ttrace::value_sample_test {
namespace {

using testing::HasSubstr;

// Any bits, NaN with a payload among them.
std::vector<std::byte> RandomBits(int64_t elements) {
  std::mt19937 rng(3);
  std::vector<std::byte> out(static_cast<size_t>(elements) * 2);
  for (std::byte& byte : out) byte = static_cast<std::byte>(rng());
  return out;
}

int64_t CountOf(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1},
                         std::multiplies<>());
}

// What a rank holds of bfloat16 values of a whole tensor.
std::vector<std::byte> LocalBits(const std::vector<std::byte>& whole,
                                 const Layout& layout) {
  std::vector<std::byte> out;
  for (const size_t index : LogicalIndices(layout)) {
    out.push_back(whole[2 * index]);
    out.push_back(whole[2 * index + 1]);
  }
  return out;
}

TensorSummary SummaryOf(const std::vector<std::byte>& whole,
                        const Layout& layout, size_t buckets) {
  const std::vector<std::byte> bits = LocalBits(whole, layout);
  const std::vector<int64_t> strides = RowMajorStrides(layout.local_shape());
  return OrDie(
      Summarize({bits.data(), DType::kBF16, strides, layout}, buckets));
}

Layout LayoutOf(const DeviceMesh& mesh, const Coordinate& coordinate,
                const PlacementMap& placements, const Shape& shape,
                const std::optional<BatchRows>& rows = std::nullopt) {
  return OrDie(ResolveLayout(mesh, coordinate, placements, shape, rows));
}

const Shape kShapes[] = {{},       {1},         {7},           {256},
                         {257},    {100'003},   {0, 4},        {3, 5},
                         {50, 3},  {2, 4096},   {4096, 2},     {61, 67},
                         {16, 16}, {64, 8, 64}, {5, 1, 7, 11}, {3, 3, 3, 3, 3}};

TEST(SampleGrid, HasPlacesAllOverTheTensor) {
  for (const Shape& shape : kShapes) {
    const SampleGrid grid(shape);
    const int64_t count = CountOf(shape);
    EXPECT_LE(grid.count(), kSamplePlaces);
    EXPECT_GE(2 * grid.count(), std::min(count, kSamplePlaces));
    if (count <= kSamplePlaces) {
      EXPECT_EQ(grid.count(), count);
    }
    std::set<Shape> places;
    for (int64_t i = 0; i < grid.count(); ++i) {
      const Shape at = grid.at(i);
      for (size_t d = 0; d < shape.size(); ++d) {
        EXPECT_GE(at[d], 0);
        EXPECT_LT(at[d], shape[d]);
      }
      places.insert(at);
    }
    EXPECT_EQ(static_cast<int64_t>(places.size()), grid.count());
  }
  const SampleGrid square({64, 512});
  EXPECT_EQ(square.indices()[0].size(), 16u);
  EXPECT_EQ(square.indices()[1].size(), 16u);
  EXPECT_EQ(square.at(0), (Shape{2, 16}));
  EXPECT_EQ(square.at(255), (Shape{62, 496}));
}

TEST(SampleGrid, OfASizeThatOverflowsHasPlaces) {
  const int64_t n = int64_t{1} << 62;
  const SampleGrid grid({n});
  EXPECT_EQ(grid.count(), 256);
  EXPECT_EQ(grid.indices()[0].back(), n / 256 * 255 + n / 512);
}

TEST(ValueSample, OfShardsIsThatOfTheWholeBitForBit) {
  const Shape shape = {24, 8, 36};
  const std::vector<std::byte> bits = RandomBits(CountOf(shape));
  DeviceMesh mesh;
  mesh.dims = {{"dp", 2}, {"tp", 2}};
  const Layout whole = LayoutOf(mesh, {0, 0}, {}, shape);
  const PlacementMap kCuts[] = {
      {{"tp", Shard{0}}},
      {{"tp", Shard{2}}, {"dp", Shard{2}}},
      {{"dp", Shard{0}}, {"tp", Shard{0}}},
      {{"tp", ZigzagShard{0}}, {"dp", Shard{1}}},
      {{"tp", StridedShard{2, 3}}},
  };
  for (const size_t buckets : {size_t{16}, size_t{64}}) {
    const TensorSummary expected = SummaryOf(bits, whole, buckets);
    ASSERT_TRUE(expected.sample);
    EXPECT_EQ(expected.sample->places.size(), 256u);
    EXPECT_EQ(expected.sample->values.size(),
              2 * expected.sample->places.size());
    for (const PlacementMap& placements : kCuts) {
      std::optional<TensorSummary> merged;
      std::set<std::vector<size_t>> seen;  // copies count once
      // The last rank first: parts merge in any order.
      for (int rank = 3; rank >= 0; --rank) {
        const Layout layout =
            LayoutOf(mesh, {rank / 2, rank % 2}, placements, shape);
        const TensorSummary part = SummaryOf(bits, layout, buckets);
        // As it is read from a file.
        TensorSummary read = OrDie(DecodeSummary(EncodeSummary(part)));
        OrDie(read.Place(layout, DType::kBF16));
        EXPECT_EQ(*read.sample, *part.sample);
        if (!seen.insert(LogicalIndices(layout)).second) continue;
        if (!merged) {
          merged = std::move(read);
        } else {
          OrDie(merged->Merge(read));
        }
      }
      EXPECT_EQ(*merged->sample, *expected.sample);
      EXPECT_EQ(merged->digest, expected.digest);
    }
  }
}

TEST(ValueSample, OfMicroBatchesIsThatOfTheBatch) {
  const Shape shape = {24, 8, 36};
  const std::vector<std::byte> bits = RandomBits(CountOf(shape));
  DeviceMesh mesh;
  mesh.dims = {{"tp", 2}};
  std::optional<TensorSummary> merged;
  for (int64_t row = 0; row < 8; ++row) {
    for (int tp = 0; tp < 2; ++tp) {
      const TensorSummary part =
          SummaryOf(bits,
                    LayoutOf(mesh, {tp}, {{"tp", Shard{2}}}, shape,
                             BatchRows{1, row, 1, 8}),
                    64);
      if (!merged) {
        merged = part;
      } else {
        OrDie(merged->Merge(part));
      }
    }
  }
  EXPECT_EQ(*merged->sample,
            *SummaryOf(bits, LayoutOf(mesh, {0}, {}, shape), 64).sample);
}

TEST(ValueSample, IsTakenFromMemoryInAnyOrder) {
  const Shape shape = {40, 30};
  const std::vector<std::byte> bits = RandomBits(CountOf(shape));
  DeviceMesh mesh;
  mesh.dims = {{"tp", 1}};
  const Layout layout = LayoutOf(mesh, {0}, {}, shape);
  const TensorSummary packed = SummaryOf(bits, layout, 16);
  std::vector<std::byte> transposed(bits.size());
  for (size_t i = 0; i < 40; ++i) {
    for (size_t j = 0; j < 30; ++j) {
      std::memcpy(&transposed[2 * (j * 40 + i)], &bits[2 * (i * 30 + j)], 2);
    }
  }
  const std::vector<int64_t> strides = {1, 40};
  EXPECT_EQ(
      *OrDie(Summarize({transposed.data(), DType::kBF16, strides, layout}, 16))
           .sample,
      *packed.sample);
}

TEST(ValueSample, PartsThatOverlapAreRefused) {
  const Shape shape = {24, 36};
  const std::vector<std::byte> bits = RandomBits(CountOf(shape));
  DeviceMesh mesh;
  mesh.dims = {{"tp", 2}};
  TensorSummary part =
      SummaryOf(bits, LayoutOf(mesh, {0}, {{"tp", Shard{0}}}, shape), 16);
  EXPECT_FALSE(part.Merge(part).ok());
  // What an earlier version wrote of another part has no sample.
  TensorSummary old =
      SummaryOf(bits, LayoutOf(mesh, {1}, {{"tp", Shard{0}}}, shape), 16);
  old.sample.reset();
  OrDie(part.Merge(old));
  EXPECT_FALSE(part.sample);
}

TEST(TensorSummary, OfADigestAloneHasNoSample) {
  const Shape shape = {24, 36};
  DeviceMesh mesh;
  mesh.dims = {{"tp", 1}};
  const Layout layout = LayoutOf(mesh, {0}, {}, shape);
  TensorSummary summary = SummaryOf(RandomBits(CountOf(shape)), layout, 64);
  const size_t with = EncodeSummary(summary).size();
  summary.sample.reset();
  const std::vector<std::byte> bytes = EncodeSummary(summary);
  EXPECT_EQ(bytes.size() + 8 + 2 * 256, with);
  EXPECT_EQ(bytes[0], std::byte{1});
  TensorSummary read = OrDie(DecodeSummary(bytes));
  OrDie(read.Place(layout, DType::kBF16));
  EXPECT_FALSE(read.sample);
  EXPECT_EQ(read.digest, summary.digest);
}

TEST(TensorSummary, BytesThatAreNoneAreRefused) {
  const Shape shape = {24, 36};
  DeviceMesh mesh;
  mesh.dims = {{"tp", 2}};
  const Layout layout = LayoutOf(mesh, {0}, {{"tp", Shard{0}}}, shape);
  const std::vector<std::byte> bits = RandomBits(CountOf(shape));
  for (const size_t buckets : {size_t{16}, size_t{64}}) {
    const std::vector<std::byte> good =
        EncodeSummary(SummaryOf(bits, layout, buckets));
    EXPECT_EQ(static_cast<int64_t>(good.size()),
              EncodedSummaryBytes(buckets, layout, DType::kBF16));
    ASSERT_TRUE(DecodeSummary(good).ok());
    // Whatever is left is none, or none of this piece.
    for (size_t cut = 0; cut < good.size(); ++cut) {
      auto read = DecodeSummary({good.data(), cut});
      if (!read.ok()) continue;
      TensorSummary summary = *std::move(read);
      EXPECT_FALSE(summary.Place(layout, DType::kBF16).ok()) << cut;
    }
    std::vector<std::byte> longer = good;
    longer.push_back({});
    EXPECT_FALSE(DecodeSummary(longer).ok());
    const auto with = [&](size_t at, uint32_t value) {
      std::vector<std::byte> bad = good;
      std::memcpy(bad.data() + at, &value, sizeof(value));
      return bad;
    };
    const size_t sample = 64 + 4 * buckets;
    for (const std::vector<std::byte>& bad :
         {with(0, 3), with(0, 0xFFFF'FFFF), with(0, 1), with(4, 48),
          with(4, 0xFFFF'FFFF), with(8 + 4, 0xFFFF'FFFF),
          with(16 + 4, 0xFFFF'FFFF), with(24 + 4, 0xFFFF'FFFF), with(sample, 0),
          with(sample, 128), with(sample, 0xFFFF'FFFF), with(sample + 4, 0),
          with(sample + 4, 7), with(sample + 4, 0xFFFF'FFFF),
          // Fewer elements than the sample has.
          with(8, 3)}) {
      EXPECT_FALSE(DecodeSummary(bad).ok());
    }
    // More places than such a grid has.
    const auto most = static_cast<uint32_t>(kSamplePlaces);
    std::vector<std::byte> many = with(sample + 4, most + 1);
    many.resize(sample + 8 + most + 1);
    EXPECT_FALSE(DecodeSummary(many).ok());
    // Of another piece, and of another dtype.
    TensorSummary read = OrDie(DecodeSummary(good));
    EXPECT_FALSE(read.Place(LayoutOf(mesh, {0}, {}, shape), DType::kBF16).ok());
    const Status wider = read.Place(layout, DType::kF32);
    ASSERT_FALSE(wider.ok());
    EXPECT_THAT(wider.error().message(), HasSubstr("a sample of"));
    OrDie(read.Place(layout, DType::kBF16));
  }
}

TEST(TensorSummary, OfAnyBytesIsOneThatFitsItsPieceOrNone) {
  const Shape shape = {24, 36};
  DeviceMesh mesh;
  mesh.dims = {{"tp", 2}};
  const Layout layout = LayoutOf(mesh, {1}, {{"tp", Shard{1}}}, shape);
  const std::vector<std::byte> bits = RandomBits(CountOf(shape));
  std::mt19937 rng(11);
  int fitting = 0;
  const std::vector<std::byte> whole =
      EncodeSummary(SummaryOf(bits, layout, 16));
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes = whole;
    // Where numbers of elements stand, and anywhere.
    const size_t sample = 64 + 64;
    const size_t places[] = {0, 4, 8, 16, sample, sample + 4};
    for (unsigned changes = rng() % 3 + 1; changes-- > 0;) {
      const size_t at =
          rng() % 2 == 0 ? places[rng() % 6] + rng() % 4 : rng() % bytes.size();
      bytes[at] = static_cast<std::byte>(rng() % 3 == 0 ? 0xFF : rng() % 300);
    }
    if (rng() % 4 == 0) bytes.resize(rng() % (bytes.size() + 9));
    auto read = DecodeSummary(bytes);
    if (!read.ok()) continue;
    TensorSummary summary = *std::move(read);
    EXPECT_EQ(EncodeSummary(summary).size(), bytes.size());
    if (!summary.Place(layout, DType::kBF16).ok()) continue;
    ++fitting;
    EXPECT_EQ(summary.count, layout.local_count());
    if (!summary.sample) continue;
    EXPECT_EQ(summary.sample->values.size(), 2 * summary.sample->places.size());
    for (const int64_t place : summary.sample->places) {
      EXPECT_GE(place, 0);
      EXPECT_LT(place, kSamplePlaces);
    }
  }
  // Those of which values or sums were changed.
  EXPECT_GT(fitting, 1000);
}

}  // namespace
}  // namespace ttrace::value_sample_test
