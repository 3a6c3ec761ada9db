#include "src/numeric/random_tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "src/numeric/digest_kernel.h"
#include "src/numeric/fixed_vectors.h"
#include "src/numeric/narrow.h"
#include "src/numeric/noise_kernel.h"
#include "src/numeric/random_kernel.h"
#include "src/numeric/widen.h"

// Built with -ffp-contract=off, as the kernel is.

namespace ttrace::random_tensor_test {
namespace {

const NoiseKey kKey = MakeNoiseKey(7, "random");

// The formula of random_kernel.cc, one value at a time.
void PairByDefinition(uint32_t a, uint32_t b, float* cosine, float* sine) {
  const auto u = static_cast<float>((a >> 8) + 1);
  const uint32_t bits = std::bit_cast<uint32_t>(u) + 0x3F800000U - 0x3F3504F3U;
  const auto e =
      static_cast<float>(static_cast<int32_t>(bits >> 23) - 127 - 24);
  const float f =
      std::bit_cast<float>((bits & 0x007FFFFFU) + 0x3F3504F3U) - 1.0F;
  float y = 7.0376836292E-2F;
  for (const float c : {-1.1514610310E-1F, 1.1676998740E-1F, -1.2420140846E-1F,
                        1.4249322787E-1F, -1.6668057665E-1F, 2.0000714765E-1F,
                        -2.4999993993E-1F, 3.3333331174E-1F}) {
    y = y * f + c;
  }
  const float f2 = f * f;
  const float ln = (y * f * f2 - f2 * 0.5F) + (f + e * 0.693147180559945F);
  const float square = ln * -2.0F;
  const float r = std::sqrt(square > 0 ? square : 0.0F);
  const float t = static_cast<float>(
                      static_cast<int32_t>((b >> 6) & 0xFFFFFFU) - (1 << 23)) *
                  9.36267570e-8F;
  const float t2 = t * t;
  float s =
      (-1.9515295891E-4F * t2 + 8.3321608736E-3F) * t2 + -1.6666654611E-1F;
  s = s * t2 * t + t;
  float c = (2.443315711809948E-5F * t2 + -1.388731625493765E-3F) * t2 +
            4.166664568298827E-2F;
  c = (c * t2 * t2 - t2 * 0.5F) + 1.0F;
  const uint32_t quadrant = b >> 30;
  if (quadrant % 2 == 1) std::swap(s, c);
  *cosine = r * (quadrant == 1 || quadrant == 2 ? -c : c);
  *sine = r * (quadrant >= 2 ? -s : s);
}

// On every instruction set that this machine has.
class RandomKernel : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(RandomKernel, NormalIsItsDefinitionBitByBit) {
  constexpr size_t kTiles = 4000;
  std::vector<uint32_t> words(kTiles * kNoiseTile);
  NoiseWords(kKey, 0, kTiles, words.data());
  // The ends of both ranges.
  for (size_t l = 0; l < 16; ++l) {
    words[l] = l % 2 == 0 ? 0 : ~0U;
    words[16 + l] = static_cast<uint32_t>(l / 2) << 29;
    words[32 + l] = l % 2 == 0 ? 0x7FU : 0xB504F300U + static_cast<uint32_t>(l);
    words[48 + l] = (static_cast<uint32_t>(l / 2) << 29) - 1;
  }
  std::vector<float> got(words.size());
  NormalOfWords(words.data(), kTiles, 0.3F, got.data());
  for (size_t i = 0; i < words.size(); ++i) {
    if (i % 32 >= 16) continue;
    float cosine = 0;
    float sine = 0;
    PairByDefinition(words[i], words[i + 16], &cosine, &sine);
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]),
              std::bit_cast<uint32_t>(cosine * 0.3F));
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i + 16]),
              std::bit_cast<uint32_t>(sine * 0.3F));
  }
}

TEST_P(RandomKernel, NormalIsCloseToTheExactFormula) {
  std::vector<uint32_t> words(kNoiseTile);
  std::vector<float> got(kNoiseTile);
  for (uint64_t t = 0; t < 2000; ++t) {
    NoiseWords(kKey, t, 1, words.data());
    NormalOfWords(words.data(), 1, 1, got.data());
    for (size_t i = 0; i < kNoiseTile; ++i) {
      if (i % 32 >= 16) continue;
      const double u = (static_cast<double>(words[i] >> 8) + 1) * 0x1p-24;
      const double r = std::sqrt(-2 * std::log(u));
      const double angle =
          std::acos(-1.0) / 2 *
          (static_cast<double>(words[i + 16] >> 30) +
           static_cast<double>((words[i + 16] >> 6) & 0xFFFFFF) * 0x1p-24 -
           0.5);
      EXPECT_NEAR(static_cast<double>(got[i]), r * std::cos(angle), 2e-6);
      EXPECT_NEAR(static_cast<double>(got[i + 16]), r * std::sin(angle), 2e-6);
    }
  }
}

TEST_P(RandomKernel, UniformIsTheNoise) {
  std::vector<uint32_t> words(3 * kNoiseTile);
  NoiseWords(kKey, 0, 3, words.data());
  std::vector<float> got(words.size());
  UniformOfWords(words.data(), 3, 0.3F, got.data());
  for (uint64_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i], UniformAt(kKey, i) * 0.3F);
  }
}

std::vector<float> Fill(const NoiseKey& key, Distribution distribution,
                        int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  Layout layout;
  layout.dims.push_back({{{0, count}}, count});
  const int64_t strides[] = {1};
  EXPECT_TRUE(FillRandom(key, distribution, 1, layout, DType::kF32,
                         reinterpret_cast<std::byte*>(out.data()), strides)
                  .ok());
  return out;
}

// Rows and columns in segments, transposed, of all floating dtypes.
TEST_P(RandomKernel, EveryPartIsThatOfTheWhole) {
  constexpr int64_t kRows = 50, kCols = 300;
  const std::vector<float> whole =
      Fill(kKey, Distribution::kNormal, kRows * kCols);
  Layout shard;
  shard.dims.push_back({{{40, 10}, {3, 20}}, kRows});
  shard.dims.push_back({{{129, 64}, {0, 70}, {299, 1}}, kCols});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                            DType::kF8E4M3FN, DType::kF8E5M2}) {
    for (const bool transposed : {false, true}) {
      const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
      std::vector<std::byte> memory(30 * 140 * itemsize);
      const int64_t strides[] = {transposed ? 1 : 140, transposed ? 31 : 1};
      ASSERT_TRUE(FillRandom(kKey, Distribution::kNormal, 1, shard, dtype,
                             memory.data(), strides)
                      .ok());
      for (int64_t i = 0; i < 30; ++i) {
        const int64_t row = i < 10 ? 40 + i : i - 7;
        for (int64_t j = 0; j < 135; ++j) {
          const int64_t col = j < 64 ? 129 + j : j < 134 ? j - 64 : 299;
          std::byte want[8] = {};
          Narrow(dtype,
                 static_cast<double>(
                     whole[static_cast<size_t>(row * kCols + col)]),
                 want);
          const auto at =
              static_cast<size_t>(i * strides[0] + j * strides[1]) * itemsize;
          ASSERT_EQ(std::memcmp(memory.data() + at, want, itemsize), 0)
              << Info(dtype).torch_name << " " << i << " " << j;
        }
      }
    }
  }
}

// What a trace was recorded with: the definition may not change either. All
// values by their digest.
TEST_P(RandomKernel, IsWhatItHasAlwaysBeen) {
  const NoiseKey key = MakeNoiseKey(7, "golden");
  struct Golden {
    Distribution distribution;
    DType dtype;
    std::array<uint64_t, 2> digest;
  };
  const Golden all[] = {{Distribution::kNormal,
                         DType::kF32,
                         {0xBF3252D64270FC23, 0xF551E47CC9F63FD8}},
                        {Distribution::kNormal,
                         DType::kBF16,
                         {0xA71DC878426E802A, 0xA0A1E2CB3DD6F715}},
                        {Distribution::kUniform,
                         DType::kF32,
                         {0x21DBC241D6BAE615, 0xEB7958C0709E5A6C}}};
  Layout layout;
  layout.dims.push_back({{{77, 20000}}, int64_t{1} << 20});
  const int64_t strides[] = {1};
  for (const Golden& golden : all) {
    std::vector<std::byte> out(
        20000 * static_cast<size_t>(Info(golden.dtype).itemsize));
    ASSERT_TRUE(FillRandom(key, golden.distribution, 0.02F, layout,
                           golden.dtype, out.data(), strides)
                    .ok());
    EXPECT_EQ(PositionalRun(out.data(), 0, out.size()), golden.digest);
    if (golden.distribution == Distribution::kNormal &&
        golden.dtype == DType::kF32) {
      EXPECT_EQ(LoadAs<float>(out.data()), 0x1.016d0cp-7F);
      EXPECT_EQ(LoadAs<float>(out.data() + 4), -0x1.f9dd38p-8F);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, RandomKernel,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

TEST(RandomTensor, IntegersAndOtherStridesAreRefused) {
  Layout layout;
  layout.dims.push_back({{{0, 1}}, 1});
  const int64_t strides[] = {1, 1};
  std::byte out[8];
  const Status integers = FillRandom(kKey, Distribution::kNormal, 1, layout,
                                     DType::kI32, out, std::span(strides, 1));
  ASSERT_FALSE(integers.ok());
  EXPECT_EQ(integers.error().code(), ErrorCode::kUnsupported);
  const Status lengths = FillRandom(kKey, Distribution::kNormal, 1, layout,
                                    DType::kF32, out, strides);
  ASSERT_FALSE(lengths.ok());
  EXPECT_EQ(lengths.error().code(), ErrorCode::kInvalidArgument);
}

// 2^20 values; bounds of 4.5 standard deviations of each statistic.
class RandomQuality : public testing::Test {
 protected:
  static constexpr int64_t kCount = int64_t{1} << 20;
  const double n = kCount;

  static double Correlation(const std::vector<float>& a,
                            const std::vector<float>& b, size_t lag) {
    double sum = 0;
    for (size_t i = 0; i + lag < a.size(); ++i) {
      sum += static_cast<double>(a[i]) * static_cast<double>(b[i + lag]);
    }
    return sum / std::sqrt(static_cast<double>(a.size() - lag));
  }
};

TEST_F(RandomQuality, MomentsAndTailsOfNormal) {
  const std::vector<float> values = Fill(kKey, Distribution::kNormal, kCount);
  double moment[7] = {};
  for (const float value : values) {
    double power = 1;
    for (double& m : moment) {
      m += power;
      power *= static_cast<double>(value);
    }
  }
  // Of E x^k, with the variance of x^k.
  const double want[] = {1, 0, 1, 0, 3, 0, 15};
  const double variance[] = {1, 1, 2, 15, 96, 945, 10170};
  for (size_t k = 1; k < 7; ++k) {
    EXPECT_NEAR((moment[k] / n - want[k]) * std::sqrt(n / variance[k]), 0, 4.5)
        << k;
  }
  for (const double bound : {1.0, 2.0, 3.0, 4.0}) {
    const double p = std::erfc(bound / std::sqrt(2.0));
    const auto beyond = static_cast<double>(std::count_if(
        values.begin(), values.end(),
        [&](float x) { return std::fabs(static_cast<double>(x)) > bound; }));
    EXPECT_NEAR((beyond - n * p) / std::sqrt(n * p * (1 - p)), 0, 4.5) << bound;
  }
}

TEST_F(RandomQuality, DistributionOfNormal) {
  std::vector<float> values = Fill(kKey, Distribution::kNormal, kCount);
  std::sort(values.begin(), values.end());
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double p =
        std::erfc(-static_cast<double>(values[i]) / std::sqrt(2.0)) / 2;
    largest = std::max(largest, std::fabs(p - static_cast<double>(i) / n));
  }
  // Kolmogorov and Smirnov: beyond 1.95 with a probability of 0.001.
  EXPECT_LT(largest * std::sqrt(n), 1.95);
  EXPECT_GT(largest * std::sqrt(n), 0.2);
}

TEST_F(RandomQuality, BinsOfUniform) {
  constexpr size_t kBins = 4096;
  std::vector<double> bins(kBins);
  for (const float x : Fill(kKey, Distribution::kUniform, kCount)) {
    ++bins[static_cast<size_t>((static_cast<double>(x) + 1) / 2 * kBins)];
  }
  double chi2 = 0;
  const double want = n / kBins;
  for (const double count : bins) {
    chi2 += (count - want) * (count - want) / want;
  }
  EXPECT_NEAR((chi2 - kBins) / std::sqrt(2.0 * kBins), 0, 4.5);
}

TEST_F(RandomQuality, NeighboursSeedsAndNamesAreIndependent) {
  const std::vector<float> values = Fill(kKey, Distribution::kNormal, kCount);
  std::vector<float> squares = values;
  for (float& x : squares) x = (x * x - 1) / std::sqrt(2.0F);
  for (const size_t lag : {1U, 2U, 15U, 16U, 17U, 32U, 48U, 64U, 1024U}) {
    EXPECT_NEAR(Correlation(values, values, lag), 0, 4.5) << lag;
    EXPECT_NEAR(Correlation(squares, squares, lag), 0, 4.5) << lag;
    EXPECT_NEAR(Correlation(squares, values, lag), 0, 4.5) << lag;
  }
  for (const NoiseKey& other :
       {MakeNoiseKey(8, "random"), MakeNoiseKey(7, "other")}) {
    EXPECT_NEAR(
        Correlation(values, Fill(other, Distribution::kNormal, kCount), 0), 0,
        4.5);
  }
}

}  // namespace
}  // namespace ttrace::random_tensor_test
