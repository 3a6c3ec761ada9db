#include "src/numeric/noise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "src/numeric/round_to.h"
#include "src/numeric/widen.h"

namespace ttrace::noise_test {
namespace {

const NoiseKey kKey = MakeNoiseKey(17, "decoder.layers.0.mlp");

Layout WholeLayout(const Shape& shape) {
  Layout layout;
  for (const int64_t size : shape) layout.dims.push_back({{{0, size}}, size});
  return layout;
}

Status PerturbInPlace(const NoiseKey& key, const Layout& layout, DType dtype,
                      std::byte* data, std::span<const int64_t> strides) {
  return Perturb(key, layout, dtype, data, strides, data, strides);
}

std::span<std::byte> Bytes(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

std::vector<float> RandomFloats(size_t count) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

// Stored references depend on these numbers: a change is a new noise.
TEST(Noise, ElementsOfAKeyArePinned) {
  const NoiseKey key = {0, 0};
  // Words 0 and 1 of Philox(counter 0, key 0): 0x6627e8d5 and 0xe169c58d.
  EXPECT_EQ(UniformAt(key, 0), (0x6627e8 + 0.5F) * 0x1p-23F);
  EXPECT_EQ(UniformAt(key, 16), (-(0x1000000 - 0xe169c5) + 0.5F) * 0x1p-23F);
}

TEST(Noise, IsUniformBetweenMinusOneAndOne) {
  double sum = 0;
  double sum_sq = 0;
  constexpr int kCount = 1 << 16;
  for (int i = 0; i < kCount; ++i) {
    const auto x = static_cast<double>(UniformAt(kKey, uint64_t(i)));
    ASSERT_LT(std::fabs(x), 1);
    ASSERT_NE(x, 0);
    sum += x;
    sum_sq += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 5 * std::sqrt(1.0 / 3 / kCount));
  EXPECT_NEAR(sum_sq / kCount, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kCount));
}

TEST(Noise, DependsOnSeedNameAndIndex) {
  std::set<float> values;
  for (const uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
    values.insert(UniformAt(MakeNoiseKey(1, "a"), index));
    values.insert(UniformAt(MakeNoiseKey(2, "a"), index));
    values.insert(UniformAt(MakeNoiseKey(1, "b"), index));
  }
  EXPECT_EQ(values.size(), 9U);
}

TEST(Noise, PerturbIsItsDefinition) {
  std::vector<float> values = RandomFloats(1000);
  const std::vector<float> before = values;
  const int64_t strides[] = {100, 10, 1};
  ASSERT_TRUE(PerturbInPlace(kKey, WholeLayout({10, 10, 10}), DType::kF32,
                             Bytes(values).data(), strides)
                  .ok());
  int changed = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double factor = 1 + 0x1p-24 * static_cast<double>(UniformAt(kKey, i));
    EXPECT_EQ(values[i],
              static_cast<float>(static_cast<double>(before[i]) * factor));
    changed += values[i] != before[i] ? 1 : 0;
  }
  EXPECT_GT(changed, 200);  // about 0.28 of all if mantissas are uniform
}

// All 16-bit values, against a search for the nearest representable number.
template <class WidenBits>
void ExpectNearestEven(DType dtype, uint16_t infinity, WidenBits widen) {
  std::vector<uint16_t> values(65536);
  for (size_t i = 0; i < values.size(); ++i) values[i] = uint16_t(i);
  const int64_t strides[] = {1};
  ASSERT_TRUE(PerturbInPlace(kKey, WholeLayout({65536}), dtype,
                             std::as_writable_bytes(std::span(values)).data(),
                             strides)
                  .ok());
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const auto magnitude = static_cast<uint16_t>(bits & 0x7FFF);
    if (magnitude == 0 || magnitude >= infinity) {
      EXPECT_EQ(values[i], bits);
      continue;
    }
    const auto x = static_cast<double>(widen(bits));
    // Below the smallest normal number spacing is that of the lowest binade.
    const double normal = RangeOf(dtype).tiny;
    const double want =
        x + std::copysign(std::max(std::fabs(x), 1.5 * normal), x) *
                UnitRoundoff(dtype) * static_cast<double>(UniformAt(kKey, i));
    uint16_t nearest = bits;
    for (const int step : {-1, 1}) {
      const auto other = static_cast<uint16_t>(bits + step);
      if ((other & 0x7FFF) >= infinity) continue;
      if (((other ^ bits) & 0x8000) != 0) continue;
      const double here = std::fabs(static_cast<double>(widen(nearest)) - want);
      const double there = std::fabs(static_cast<double>(widen(other)) - want);
      if (there < here || (there == here && other % 2 == 0)) nearest = other;
    }
    EXPECT_EQ(values[i], nearest) << std::hex << i;
  }
}
TEST(Noise, EveryBF16IsRoundedToNearestEven) {
  ExpectNearestEven(DType::kBF16, 0x7F80, WidenBF16);
}
TEST(Noise, EveryF16IsRoundedToNearestEven) {
  ExpectNearestEven(DType::kF16, 0x7C00, WidenF16);
}

TEST(Noise, DoublesMoveByAtMostOneUnitInTheLastPlace) {
  std::vector<double> values(1000, 1.75);
  values[0] = std::numeric_limits<double>::max();
  const int64_t strides[] = {1};
  ASSERT_TRUE(PerturbInPlace(kKey, WholeLayout({1000}), DType::kF64,
                             std::as_writable_bytes(std::span(values)).data(),
                             strides)
                  .ok());
  EXPECT_TRUE(std::isfinite(values[0]));
  int moved = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    EXPECT_LE(std::fabs(values[i] - 1.75), 0x1p-52);
    moved += values[i] != 1.75 ? 1 : 0;
  }
  EXPECT_GT(moved, 250);
  EXPECT_LT(moved, 600);
}

TEST(Noise, ShardsPerturbedOneByOneMakeTheWholePerturbed) {
  const Shape shape = {6, 16, 20};
  std::vector<float> whole = RandomFloats(6 * 16 * 20);
  const std::vector<float> before = whole;
  const int64_t strides[] = {320, 20, 1};
  ASSERT_TRUE(PerturbInPlace(kKey, WholeLayout(shape), DType::kF32,
                             Bytes(whole).data(), strides)
                  .ok());
  // cp cuts dimension 1 in zigzag, tp interleaves dimension 2, and the last
  // rank's shard of dimension 0 is short.
  const DeviceMesh mesh = {{{"dp", 4}, {"cp", 2}, {"tp", 2}}};
  const PlacementMap placements = {
      {"dp", Shard{0}}, {"cp", ZigzagShard{1}}, {"tp", StridedShard{2, 2}}};
  size_t seen = 0;
  for (int rank = 0; rank < 16; ++rank) {
    const auto layout = ResolveLayout(mesh, {rank / 4, rank / 2 % 2, rank % 2},
                                      placements, shape, std::nullopt);
    ASSERT_TRUE(layout.ok()) << layout.error().message();
    std::vector<size_t> logical;
    for (const Segment& a : layout->dims[0].segments)
      for (int64_t i = a.begin; i < a.begin + a.size; ++i)
        for (const Segment& b : layout->dims[1].segments)
          for (int64_t j = b.begin; j < b.begin + b.size; ++j)
            for (const Segment& c : layout->dims[2].segments)
              for (int64_t k = c.begin; k < c.begin + c.size; ++k)
                logical.push_back(static_cast<size_t>(320 * i + 20 * j + k));
    // Stored transposed and with gaps: strides must not matter.
    const Shape local = layout->local_shape();
    const int64_t odd[] = {2, local[0] * 2, local[0] * local[1] * 2};
    std::vector<float> shard(logical.size() * 2, -1);
    const auto at = [&](size_t n) {
      const auto m = static_cast<int64_t>(n);
      return static_cast<size_t>(m % local[2] * odd[2] +
                                 m / local[2] % local[1] * odd[1] +
                                 m / local[2] / local[1] * odd[0]);
    };
    for (size_t n = 0; n < logical.size(); ++n)
      shard[at(n)] = before[logical[n]];
    ASSERT_TRUE(
        PerturbInPlace(kKey, *layout, DType::kF32, Bytes(shard).data(), odd)
            .ok());
    for (size_t n = 0; n < logical.size(); ++n)
      EXPECT_EQ(shard[at(n)], whole[logical[n]]) << rank << " " << n;
    seen += logical.size();
  }
  EXPECT_EQ(seen, whole.size());
}

TEST(Noise, ACopyWithNoiseIsTheNoiseOfTheCopy) {
  const Layout layout = WholeLayout({30, 7, 11});
  const std::vector<float> values = RandomFloats(30 * 7 * 11);
  std::vector<float> in_place = values;
  const int64_t dense[] = {77, 11, 1};
  ASSERT_TRUE(
      PerturbInPlace(kKey, layout, DType::kF32, Bytes(in_place).data(), dense)
          .ok());
  const auto from = std::as_bytes(std::span(values));
  std::vector<float> copy(values.size());
  ASSERT_TRUE(Perturb(kKey, layout, DType::kF32, from.data(), dense,
                      Bytes(copy).data(), dense)
                  .ok());
  EXPECT_EQ(copy, in_place);
  // To a place that is laid out otherwise.
  const int64_t transposed[] = {1, 30 * 11, 30};
  ASSERT_TRUE(Perturb(kKey, layout, DType::kF32, from.data(), dense,
                      Bytes(copy).data(), transposed)
                  .ok());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(copy[i / 77 + i / 11 % 7 * 330 + i % 11 * 30], in_place[i]);
  }
}

TEST(Noise, PartsInAnyOrderGiveTheSameBits) {
  const int64_t count = 1'500'007;
  // Not from the first element of a tile on, and to its end.
  Layout layout = WholeLayout({count + 5});
  layout.dims[0].segments = {{5, count}};
  const std::vector<float> values = RandomFloats(static_cast<size_t>(count));
  const auto from = std::as_bytes(std::span(values));
  const int64_t one[] = {1};
  std::vector<float> expected(values.size());
  ASSERT_TRUE(Perturb(kKey, layout, DType::kF32, from.data(), one,
                      Bytes(expected).data(), one)
                  .ok());
  size_t parts = 0;
  std::vector<float> noisy(values.size());
  ASSERT_TRUE(Perturb(kKey, layout, DType::kF32, from.data(), one,
                      Bytes(noisy).data(), one,
                      [&](size_t n, const auto& part) {
                        for (parts = n; n-- > 0;) part(n);
                      })
                  .ok());
  EXPECT_EQ(noisy, expected);
  EXPECT_GE(parts, 4u);
}

TEST(Noise, AScalarHasIndexZero) {
  std::vector<float> value = {1.9F};
  ASSERT_TRUE(
      PerturbInPlace(kKey, Layout{}, DType::kF32, Bytes(value).data(), {})
          .ok());
  const auto noise = static_cast<double>(UniformAt(kKey, 0));
  EXPECT_EQ(value[0], static_cast<float>(static_cast<double>(1.9F) *
                                         (1 + 0x1p-24 * noise)));
}

TEST(Noise, RefusesWhatHasNoRoundOffOrSharesMemory) {
  std::vector<float> values(4);
  const int64_t one[] = {1};
  const int64_t zero[] = {0};
  const auto integers = PerturbInPlace(kKey, WholeLayout({4}), DType::kI32,
                                       Bytes(values).data(), one);
  ASSERT_FALSE(integers.ok());
  EXPECT_EQ(integers.error().code(), ErrorCode::kUnsupported);
  const auto bytes = PerturbInPlace(kKey, WholeLayout({4}), DType::kF8E5M2,
                                    Bytes(values).data(), one);
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().code(), ErrorCode::kUnsupported);
  const auto expanded = PerturbInPlace(kKey, WholeLayout({4}), DType::kF32,
                                       Bytes(values).data(), zero);
  ASSERT_FALSE(expanded.ok());
  EXPECT_EQ(expanded.error().code(), ErrorCode::kInvalidArgument);
  const auto rank = PerturbInPlace(kKey, WholeLayout({2, 2}), DType::kF32,
                                   Bytes(values).data(), one);
  ASSERT_FALSE(rank.ok());
  EXPECT_EQ(rank.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ttrace::noise_test
