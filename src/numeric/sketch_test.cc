#include "src/numeric/sketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "src/numeric/digest_kernel.h"
#include "src/numeric/fixed_vectors.h"
#include "src/numeric/narrow.h"
#include "src/numeric/sketch_kernel.h"
#include "src/numeric/widen.h"

namespace ttrace::sketch_test {
namespace {

constexpr uint64_t kSeed = 42;

std::vector<std::byte> Elements(DType dtype, const std::vector<float>& values) {
  const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
  std::vector<std::byte> out(values.size() * itemsize);
  for (size_t i = 0; i < values.size(); ++i) {
    Narrow(dtype, static_cast<double>(values[i]), out.data() + i * itemsize);
  }
  return out;
}

std::vector<float> Normal(size_t count, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& x : out) x = normal(rng);
  return out;
}

Layout Whole(int64_t count) {
  Layout layout;
  layout.dims.push_back({{{0, count}}, count});
  return layout;
}

Sketch Of(const std::vector<float>& values, uint64_t seed = kSeed,
          size_t buckets = kSketchBuckets) {
  const Layout layout = Whole(static_cast<int64_t>(values.size()));
  const int64_t strides[] = {1};
  Sketch sketch(seed, buckets);
  EXPECT_TRUE(sketch
                  .Add({reinterpret_cast<const std::byte*>(values.data()),
                        DType::kF32, strides, layout})
                  .ok());
  return sketch;
}

double NormOf(const std::vector<float>& values) {
  double square = 0;
  for (const float x : values) {
    square += static_cast<double>(x) * static_cast<double>(x);
  }
  return std::sqrt(square);
}

double DistanceOf(const std::vector<float>& a, const std::vector<float>& b) {
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    square += d * d;
  }
  return std::sqrt(square);
}

// On every instruction set that this machine has.
class SketchKernel : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

// Element by element, in the order of indices: the same bits.
TEST_P(SketchKernel, IsItsDefinitionFromAnyElementToAny) {
  const std::vector<float> values = Normal(3000, 1);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                            DType::kF8E4M3FN, DType::kF8E5M2}) {
    const std::vector<std::byte> elements = Elements(dtype, values);
    const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
    for (const int64_t begin :
         {int64_t{0}, int64_t{5}, int64_t{4093}, (int64_t{1} << 36) - 700}) {
      for (const size_t count : {1U, 16U, 300U, 3000U}) {
        for (const size_t buckets : {16U, 1024U, 65536U}) {
          std::vector<float> want(buckets);
          for (size_t i = 0; i < count; ++i) {
            const uint64_t index = static_cast<uint64_t>(begin) + i;
            const uint64_t line = index / 16;
            const auto lane = static_cast<uint32_t>(index % 16);
            const uint32_t hash = HashOfLine(
                static_cast<uint32_t>(line),
                KeysOfLines(kSeed, static_cast<uint32_t>(line >> 32)));
            const size_t row = (hash >> 20) & (buckets / 16 - 1);
            const auto x = static_cast<float>(
                WidenElement(dtype, elements.data() + i * itemsize));
            want[16 * row + (lane ^ ((hash >> 16) & 15))] +=
                ((hash >> lane) & 1) != 0 ? -x : x;
          }
          Layout layout;
          layout.dims.push_back(
              {{{begin, static_cast<int64_t>(count)}}, int64_t{1} << 40});
          const int64_t strides[] = {1};
          Sketch sketch(kSeed, buckets);
          ASSERT_TRUE(
              sketch.Add({elements.data(), dtype, strides, layout}).ok());
          for (size_t i = 0; i < buckets; ++i) {
            ASSERT_EQ(sketch.buckets()[i], static_cast<double>(want[i]))
                << Info(dtype).torch_name << " " << begin << " " << count;
          }
        }
      }
    }
  }
}

// What traces hold: the definition may not change either. All of its buckets by
// their digest, of four parts in fp32, times a scale that needs rounding.
TEST_P(SketchKernel, IsWhatItHasAlwaysBeen) {
  std::vector<float> values(50000);
  for (uint32_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<float>(static_cast<int32_t>(i * 0x9E3779B1U)) * 0x1p-30F;
  }
  Layout layout;
  layout.dims.push_back({{{100, 50000}}, int64_t{1} << 20});
  const int64_t strides[] = {1};
  for (const bool scaled : {false, true}) {
    Sketch sketch(kSeed);
    ASSERT_TRUE(sketch
                    .Add({reinterpret_cast<const std::byte*>(values.data()),
                          DType::kF32, strides, layout},
                         scaled ? 0.3 : 1)
                    .ok());
    EXPECT_EQ(sketch.buckets()[5],
              scaled ? 0x1.00ed5dcccccccp-1 : 0x1.ac3647p+0);
    const std::array<uint64_t, 2> first = {0xF14C5ABD507CAEFF,
                                           0xC4687F58CC671E54};
    const std::array<uint64_t, 2> second = {0x3871243176E3E9AF,
                                            0xC42D218EF6CEA855};
    EXPECT_EQ(PositionalRun(
                  reinterpret_cast<const std::byte*>(sketch.buckets().data()),
                  0, 8 * sketch.buckets().size()),
              scaled ? second : first);
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, SketchKernel,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

// Columns of 333 of 1000, with a stride, and terms of 0.3 and 0.7.
TEST(Sketch, ShardsAndTermsAddUp) {
  constexpr int64_t kRows = 300, kCols = 1000;
  const std::vector<float> values = Normal(kRows * kCols, 2);
  const Sketch whole = Of(values);
  Sketch sum(kSeed);
  const int64_t strides[] = {kCols, 1};
  for (int64_t begin = 0; begin < kCols; begin += 333) {
    Layout layout;
    layout.dims.push_back({{{0, kRows}}, kRows});
    layout.dims.push_back(
        {{{begin, std::min(kCols - begin, int64_t{333})}}, kCols});
    for (const double weight : {0.3, 0.7}) {
      Sketch shard(kSeed);
      ASSERT_TRUE(
          shard
              .Add({reinterpret_cast<const std::byte*>(values.data() + begin),
                    DType::kF32, strides, layout},
                   weight)
              .ok());
      ASSERT_TRUE(sum.Merge(shard).ok());
    }
  }
  const auto distance = EstimateDistance(sum, whole);
  ASSERT_TRUE(distance.ok());
  EXPECT_LT(distance->value, 1e-6 * NormOf(values));
}

TEST(Sketch, ASmallerOneIsAFoldOfALargerOne) {
  const std::vector<float> values = Normal(100000, 3);
  const auto folded = Of(values, kSeed, 4096).Fold(256);
  ASSERT_TRUE(folded.ok());
  const auto distance = EstimateDistance(*folded, Of(values, kSeed, 256));
  ASSERT_TRUE(distance.ok());
  EXPECT_LT(distance->value, 1e-6 * NormOf(values));
  EXPECT_FALSE(folded->Fold(512).ok());
  EXPECT_FALSE(folded->Fold(100).ok());
  EXPECT_FALSE(folded->Fold(8).ok());
}

TEST(Sketch, OfOtherSeedsOrSizesAreRefused) {
  const Sketch a(1);
  Sketch b(2);
  EXPECT_FALSE(EstimateDistance(a, b).ok());
  EXPECT_FALSE(b.Merge(a).ok());
  EXPECT_FALSE(EstimateDistance(a, Sketch(1, 512)).ok());
}

TEST(Sketch, IntegersAreRefused) {
  const Layout layout = Whole(1);
  const int64_t strides[] = {1};
  const std::byte zero[8] = {};
  Sketch sketch(1);
  const Status done = sketch.Add({zero, DType::kI64, strides, layout});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code(), ErrorCode::kUnsupported);
}

// More than one part in fp32, and the partial last line of a group.
TEST(Sketch, LongTensorsLoseNothing) {
  const std::vector<float> a((size_t{1} << 20) + 77, 1e-3F);
  std::vector<float> b = a;
  b[777777] += 1;
  const auto distance = EstimateDistance(Of(a), Of(b));
  ASSERT_TRUE(distance.ok());
  // A single element has a bucket of its own.
  EXPECT_NEAR(distance->value, 1, 1e-5);
}

using Fault = std::function<void(std::vector<float>*)>;

struct Pattern {
  const char* name;
  Fault fault;
};

// A tensor of 512 rows of 256.
constexpr size_t kRows = 512;
constexpr size_t kCols = 256;

std::vector<Pattern> DensePatterns() {
  const auto columns = [](size_t every, size_t from, float factor) {
    return [=](std::vector<float>* v) {
      for (size_t i = 0; i < v->size(); ++i) {
        if (i % kCols % every == from) (*v)[i] *= factor;
      }
    };
  };
  return {
      {"noise of 1e-2",
       [](std::vector<float>* v) {
         const std::vector<float> noise = Normal(v->size(), 99);
         for (size_t i = 0; i < v->size(); ++i) (*v)[i] += 1e-2F * noise[i];
       }},
      {"rounded to bf16",
       [](std::vector<float>* v) {
         for (float& x : *v) {
           x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xFFFF0000U);
         }
       }},
      {"twice as large",
       [](std::vector<float>* v) {
         for (float& x : *v) x *= 2;
       }},
      {"every 16th column", columns(16, 3, 0.5F)},
      {"one column", columns(kCols, 20, 0)},
      {"one row",
       [](std::vector<float>* v) {
         std::fill(v->begin() + 7 * kCols, v->begin() + 8 * kCols, 0.0F);
       }},
      {"rows shifted by 64",
       [](std::vector<float>* v) {
         std::rotate(v->begin(), v->begin() + 64 * kCols, v->end());
       }},
      {"a constant added",
       [](std::vector<float>* v) {
         for (float& x : *v) x += 0.125F;
       }},
  };
}

// Over 300 seeds of the hash: no bias, the deviation that theory gives, and
// intervals that hold the truth. Constants added to one column need the
// rotation: without it they would meet in a sixteenth of the buckets.
TEST(SketchAccuracy, IsThatOfTheoryForDenseDifferences) {
  constexpr int kSeeds = 300;
  constexpr size_t kSize = 256;
  const std::vector<float> a = Normal(kRows * kCols, 5);
  int missed = 0;
  for (const Pattern& pattern : DensePatterns()) {
    std::vector<float> b = a;
    pattern.fault(&b);
    const double want = DistanceOf(a, b);
    double sum = 0;
    double square = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto got = EstimateDistance(Of(a, seed, kSize), Of(b, seed, kSize));
      ASSERT_TRUE(got.ok());
      const double ratio = got->value * got->value / (want * want) - 1;
      sum += ratio;
      square += ratio * ratio;
      missed += got->low <= want && want <= got->high ? 0 : 1;
    }
    const double theory = std::sqrt(2.0 / kSize);
    // 4 deviations of the mean; the deviation itself is known to 4 %.
    EXPECT_NEAR(sum / kSeeds, 0, 4 * theory / std::sqrt(kSeeds))
        << pattern.name;
    EXPECT_NEAR(std::sqrt(square / kSeeds), theory, 0.25 * theory)
        << pattern.name;
  }
  // 2.4 of 2400 are allowed.
  EXPECT_LE(missed, 6);
}

// Of `count` elements in lines of their own, equal or not: the share of hashes
// whose interval does not hold the truth.
double ShareMissed(size_t count, bool equal, size_t buckets) {
  constexpr int kSeeds = 3000;
  const std::vector<float> zero(16 * count);
  const std::vector<float> normal = Normal(count, 7);
  std::vector<float> few = zero;
  for (size_t i = 0; i < count; ++i) few[16 * i] = equal ? 1 : normal[i];
  const double want = DistanceOf(zero, few);
  int missed = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto got =
        EstimateDistance(Of(zero, seed, buckets), Of(few, seed, buckets));
    const double rounding = 1e-6 * want;
    const bool held =
        got->low <= want + rounding && want - rounding <= got->high;
    missed += held ? 0 : 1;
  }
  return static_cast<double>(missed) / kSeeds;
}

// Without room for elements that meet 1 to 5 % would be missed.
TEST(SketchAccuracy, IntervalsHoldFewElements) {
  double sum = 0;
  const std::vector<size_t> counts = {1, 2, 3, 4, 6, 8, 11, 16, 24, 32, 64};
  for (const size_t count : counts) {
    for (const bool equal : {true, false}) {
      const double missed = ShareMissed(count, equal, kSketchBuckets);
      EXPECT_LE(missed, 6e-3) << count << (equal ? " equal" : " of any size");
      sum += missed;
    }
  }
  EXPECT_LE(sum / (2 * static_cast<double>(counts.size())), 3e-3);
}

// The width that many elements have, and that of one, which is nearly exact.
TEST(SketchAccuracy, IntervalsAreAsWideAsTheyNeedToBe) {
  const std::vector<float> zero(kRows * kCols);
  std::vector<float> one = zero;
  one[12345] = 2;
  for (const std::vector<float>& other : {one, Normal(zero.size(), 8)}) {
    const auto got = EstimateDistance(Of(zero), Of(other));
    ASSERT_TRUE(got.ok());
    EXPECT_NEAR(got->low / got->value, 1 / 1.084, 1e-3);
    EXPECT_NEAR(got->high / got->value, 1 / 0.916, 1e-3);
  }
}

}  // namespace
}  // namespace ttrace::sketch_test
