#include "src/judge/maxima.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "src/compare/compare_kernel.h"
#include "src/judge/constants.h"
#include "src/judge/small_sample.h"

namespace ttrace {
namespace {

constexpr double kBf16 = 0x1p-8;
constexpr int64_t kCount = 1 << 16;

// Errors of normal elements: rms `size`, the largest `peak` times as much.
ErrorStats Normal(double size, double peak = 4, int64_t count = kCount) {
  const auto n = static_cast<double>(count);
  ErrorStats stats;
  stats.count = stats.mismatched = count;
  stats.sum_sq_ref = n;
  stats.max_abs_ref = 4;
  stats.sum_sq_err = n * size * size;
  stats.max_abs_err = stats.max_elem = peak * size;
  stats.sum_sq_elem = stats.sum_sq_err;
  stats.max_block_sq_err =
      1.2 * static_cast<double>(kCompareBlock) * size * size;
  return stats;
}

struct Sample {
  LegErrors errors;
  MaximaErrors maxima;

  explicit Sample(const ErrorStats& candidate,
                  std::vector<ErrorStats> noise =
                      std::vector<ErrorStats>(3, Normal(1e-2))) {
    errors.leg = "real";
    errors.stats = candidate;
    errors.unit_roundoff = kBf16;
    for (const ErrorStats& leg : noise) errors.noise.push_back(leg.rel_err());
    maxima.noise = std::move(noise);
  }
  LegJudgement Judged() const {
    LegJudgement leg = JudgeLeg(errors);
    JudgeMaxima(errors, maxima, &leg);
    return leg;
  }
};

TEST(JudgeMaxima, AnotherDrawOfTheNoiseIsWithin) {
  const LegJudgement leg = Sample(Normal(1e-2)).Judged();
  EXPECT_TRUE(leg.element.judged);
  EXPECT_TRUE(leg.block.judged);
  EXPECT_NEAR(leg.element.bound, 2 * 4e-2, 1e-12);
  EXPECT_NEAR(leg.element.headroom, 0.5, 1e-9);
  EXPECT_NEAR(leg.block.headroom, 0.5, 1e-9);
  EXPECT_EQ(leg.decides, Statistic::kNorm);
  EXPECT_NEAR(leg.headroom, 0.5, 1e-9);
}

TEST(JudgeMaxima, OneWrongElementConvictsWhereTheNormDoesNotSeeIt) {
  ErrorStats stats = Normal(1e-2);
  stats.max_elem = stats.max_abs_err = 0.5;
  stats.sum_sq_err += 0.25;
  const LegJudgement leg = Sample(stats).Judged();
  EXPECT_LT(leg.err / leg.bound, 0.6);
  EXPECT_EQ(leg.decides, Statistic::kElement);
  EXPECT_NEAR(leg.headroom, 0.5 / 8e-2, 1e-9);
  EXPECT_EQ(leg.deciding_err(), 0.5);
  EXPECT_EQ(leg.deciding_bound(), leg.element.bound);
  EXPECT_NE(leg.provenance.find("element"), std::string::npos);
}

TEST(JudgeMaxima, OneWrongBlockConvictsWhereNoElementDoes) {
  ErrorStats stats = Normal(1e-2);
  stats.max_block_sq_err *= 9;
  const LegJudgement leg = Sample(stats).Judged();
  EXPECT_EQ(leg.decides, Statistic::kBlock);
  EXPECT_NEAR(leg.headroom, 1.5, 1e-9);
  EXPECT_EQ(leg.deciding_err(), leg.block.err);
  EXPECT_EQ(leg.deciding_bound(), leg.block.bound);
}

TEST(JudgeMaxima, NoiseThatSitsInOneElementWidensItsBound) {
  ErrorStats outlier = Normal(1e-4);
  outlier.max_elem = 4e-2;
  outlier.sum_sq_elem = 1.1 * 4e-2 * 4e-2;
  Sample setup(Normal(1e-4), {outlier, outlier, outlier});
  EXPECT_NEAR(setup.Judged().element.bound, NoiseFactor(1, 3) * 4e-2, 1e-9);
}

TEST(JudgeMaxima, NoiseInOneElementOfABlockWidensTheBlocksBound) {
  ErrorStats outlier = Normal(1e-4);
  outlier.max_block_sq_err = 1.1 * 4e-2 * 4e-2;
  outlier.max_abs_err = 4e-2;
  Sample setup(Normal(1e-4), {outlier, outlier, outlier});
  const double largest = std::sqrt(outlier.max_block_sq_err / kCount);
  EXPECT_NEAR(setup.Judged().block.bound, NoiseFactor(1, 3) * largest, 1e-9);
}

TEST(JudgeMaxima, LuckyNoiseIsMadeUpForByItsRms) {
  // The legs' largest is that of a much smaller sample.
  Sample setup(Normal(1e-2), std::vector<ErrorStats>(3, Normal(1e-2, 1.5)));
  EXPECT_NEAR(setup.Judged().element.bound,
              LargestElementFactor(kCount, 3) * 1e-2, 1e-9);
  ErrorStats flat = Normal(1e-2);
  flat.max_block_sq_err /= 100;
  flat.max_abs_err /= 10;
  Sample blocks(Normal(1e-2), std::vector<ErrorStats>(3, flat));
  EXPECT_NEAR(blocks.Judged().block.bound,
              LargestBlockFactor(kCount, 3) * 1e-2 *
                  std::sqrt(static_cast<double>(kCompareBlock) / kCount),
              1e-9);
}

TEST(JudgeMaxima, FloorsAdmitOneMoreRounding) {
  ErrorStats none = Normal(0);
  Sample setup(Normal(0), {none, none, none});
  EXPECT_NEAR(setup.Judged().element.bound, 2 * kBf16, 1e-15);
  EXPECT_NEAR(
      setup.Judged().block.bound,
      kBf16 / 2 * 4 * std::sqrt(static_cast<double>(kCompareBlock) / kCount),
      1e-15);
}

TEST(JudgeMaxima, BothEstimatesMustConvict) {
  ErrorStats far = Normal(1e-2);
  far.max_elem = 0.5;
  far.max_block_sq_err *= 100;
  Sample setup(far);
  ErrorStats hp = far;  // the reference is as far from its fp32 leg
  setup.maxima.reference_hp = hp;
  setup.maxima.candidate_hp = far;
  EXPECT_LT(setup.Judged().element.headroom, 1);
  EXPECT_LT(setup.Judged().block.headroom, 1);
  setup.maxima.reference_hp = Normal(1e-2);
  EXPECT_GT(setup.Judged().element.headroom, 1);
  EXPECT_GT(setup.Judged().block.headroom, 1);
  setup.maxima.candidate_hp = Normal(1e-2);  // the candidate is near the truth
  EXPECT_LT(setup.Judged().element.headroom, 1);
  EXPECT_LT(setup.Judged().block.headroom, 1);
}

TEST(JudgeMaxima, Fp32LegsAllowForTheirSums) {
  Sample setup(Normal(1e-2));
  setup.errors.longest_sum = 128;
  const double before = setup.Judged().element.bound;
  setup.errors.unit_roundoff = kFp32Roundoff;
  EXPECT_NEAR(setup.Judged().element.bound, 8 * before, 1e-9);
}

TEST(JudgeMaxima, LeavesToTheNormWhatItCannotJudge) {
  Sample without_noise(Normal(1e-2), {});
  EXPECT_FALSE(without_noise.Judged().element.judged);
  Sample vector(Normal(1e-2));
  vector.errors.vector_gradient = true;
  EXPECT_FALSE(vector.Judged().element.judged);
  vector.maxima.candidate_hp = vector.maxima.reference_hp = Normal(1e-2);
  EXPECT_TRUE(vector.Judged().element.judged);
  vector.maxima.candidate_hp = vector.maxima.reference_hp = std::nullopt;
  vector.errors.unit_roundoff = kFp32Roundoff;
  EXPECT_TRUE(vector.Judged().element.judged);
  const ErrorStats small = Normal(1e-2, 4, kCompareBlock);
  Sample one_block(small, {small, small, small});
  EXPECT_TRUE(one_block.Judged().element.judged);
  EXPECT_FALSE(one_block.Judged().block.judged);
}

TEST(ExceedsMaxima, NamesThePartThatHoldsTheWrongElement) {
  const LegJudgement leg = Sample(Normal(1e-2)).Judged();
  ErrorStats part = Normal(1e-2, 4, kCount / 2);
  EXPECT_FALSE(ExceedsMaxima(leg, part));
  part.max_elem = 0.1;
  EXPECT_TRUE(ExceedsMaxima(leg, part));
  part = Normal(1e-2, 4, kCount / 2);
  part.max_block_sq_err *= 9;
  EXPECT_TRUE(ExceedsMaxima(leg, part));
}

// (1 + g^2 / nu)^(-nu / 2) bounds the tail of Student's t, whose square is F.
TEST(LargestElementFactor, IsNotBelowTheQuantileAndNotFarAbove) {
  for (const int64_t n : {1, 2, 4, 16, 128}) {
    for (const int legs : {1, 3}) {
      const auto count = static_cast<double>(n);
      const double exact =
          std::sqrt(FUpperQuantile(kSmallSampleRisk / count, 1, count * legs));
      const double factor = LargestElementFactor(n, legs);
      EXPECT_GE(factor, exact) << n << " " << legs;
      EXPECT_LE(factor, 1.6 * exact) << n << " " << legs;
    }
  }
  // sqrt(2 ln(n / risk)) for large n.
  EXPECT_NEAR(LargestElementFactor(1 << 30, 3),
              std::sqrt(2 * std::log(0x1p30 / kSmallSampleRisk)), 1e-3);
}

TEST(LargestBlockFactor, IsNotBelowTheQuantileAndNotFarAbove) {
  for (const int64_t blocks : {1, 2, 16, 256}) {
    const auto count = static_cast<double>(blocks * kCompareBlock);
    const double exact =
        std::sqrt(FUpperQuantile(kSmallSampleRisk / static_cast<double>(blocks),
                                 kCompareBlock, count * 3));
    const double factor = LargestBlockFactor(blocks * kCompareBlock, 3);
    EXPECT_GE(factor, exact) << blocks;
    EXPECT_LE(factor, 1.3 * exact) << blocks;
  }
  EXPECT_TRUE(std::isinf(LargestBlockFactor(kCompareBlock - 1, 3)));
}

// Draws of one law, as clean candidates are: none may come out.
TEST(JudgeMaxima, DrawsOfOneLawStayWithin) {
  std::mt19937 rng(1);
  std::normal_distribution<double> normal;
  constexpr int64_t kElements = 2000;
  // Some elements err ten times as much as others, in runs of 200.
  const auto draw = [&] {
    ErrorStats stats;
    stats.count = kElements;
    stats.sum_sq_ref = kElements;
    stats.max_abs_ref = 1;
    for (int64_t block = 0; block < kElements; block += kCompareBlock) {
      double squares = 0;
      for (int64_t i = block; i < std::min(block + kCompareBlock, kElements);
           ++i) {
        const double d = normal(rng) * ((i / 200) % 5 == 0 ? 1e-2 : 1e-3);
        squares += d * d;
        stats.max_elem = std::max(stats.max_elem, std::fabs(d));
      }
      stats.sum_sq_err += squares;
      stats.max_block_sq_err = std::max(stats.max_block_sq_err, squares);
    }
    stats.max_abs_err = stats.max_elem;
    stats.sum_sq_elem = stats.sum_sq_err;
    return stats;
  };
  for (int round = 0; round < 200; ++round) {
    const ErrorStats candidate = draw();
    const LegJudgement leg =
        Sample(candidate, {draw(), draw(), draw()}).Judged();
    EXPECT_LT(leg.headroom, 1);
  }
}

}  // namespace
}  // namespace ttrace
