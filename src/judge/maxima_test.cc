#include "src/judge/maxima.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "src/compare/compare_kernel.h"
#include "src/judge/constants.h"
#include "src/judge/small_sample.h"
#include "src/numeric/round_to.h"
#include "ttrace/dtype.h"

namespace ttrace::maxima_test {
namespace {

constexpr double kBf16 = 0x1p-8;
constexpr double kRisk = 1e-6;
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

  explicit Sample(const ErrorStats& candidate,
                  std::vector<ErrorStats> noise =
                      std::vector<ErrorStats>(3, Normal(1e-2))) {
    errors.leg = "real";
    errors.stats = candidate;
    errors.rounding.unit_roundoff = kBf16;
    errors.risk = kRisk;
    errors.noise = std::move(noise);
  }
  LegJudgement Judged() const {
    LegJudgement leg = JudgeLeg(errors);
    JudgeMaxima(errors, &leg);
    return leg;
  }
};

double ElementBound(const LegJudgement& leg) {
  return leg.Find(Statistic::kElement)->bound;
}
double BlockBound(const LegJudgement& leg) {
  return leg.Find(Statistic::kBlock)->bound;
}
double ElementHeadroom(const LegJudgement& leg) {
  return leg.Find(Statistic::kElement)->headroom;
}
double BlockHeadroom(const LegJudgement& leg) {
  return leg.Find(Statistic::kBlock)->headroom;
}
bool HasElement(const LegJudgement& leg) {
  return leg.Find(Statistic::kElement) != nullptr;
}
bool HasBlock(const LegJudgement& leg) {
  return leg.Find(Statistic::kBlock) != nullptr;
}

TEST(JudgeMaxima, AnotherDrawOfTheNoiseIsWithin) {
  const LegJudgement leg = Sample(Normal(1e-2)).Judged();
  EXPECT_TRUE(HasElement(leg));
  EXPECT_TRUE(HasBlock(leg));
  EXPECT_NEAR(ElementBound(leg), 2 * 4e-2, 1e-12);
  EXPECT_NEAR(ElementHeadroom(leg), 0.5, 1e-9);
  EXPECT_NEAR(BlockHeadroom(leg), 0.5, 1e-9);
  EXPECT_EQ(leg.deciding()->statistic, Statistic::kNorm);
  EXPECT_NEAR(leg.headroom, 0.5, 1e-9);
}

TEST(JudgeMaxima, OneWrongElementIsFlaggedWhereTheNormDoesNotSeeIt) {
  ErrorStats stats = Normal(1e-2);
  stats.max_elem = stats.max_abs_err = 0.5;
  stats.sum_sq_err += 0.25;
  const LegJudgement leg = Sample(stats).Judged();
  EXPECT_LT(leg.err / leg.bound, 0.6);
  EXPECT_EQ(leg.deciding()->statistic, Statistic::kElement);
  EXPECT_NEAR(leg.headroom, 0.5 / 8e-2, 1e-9);
  EXPECT_EQ(leg.deciding_err(), 0.5);
  EXPECT_EQ(leg.deciding_bound(), ElementBound(leg));
}

TEST(JudgeMaxima, OneWrongBlockIsFlaggedWhereNoElementDoes) {
  ErrorStats stats = Normal(1e-2);
  stats.max_block_sq_err *= 9;
  const LegJudgement leg = Sample(stats).Judged();
  EXPECT_EQ(leg.deciding()->statistic, Statistic::kBlock);
  EXPECT_NEAR(leg.headroom, 1.5, 1e-9);
  EXPECT_EQ(leg.deciding_err(), leg.Find(Statistic::kBlock)->value);
  EXPECT_EQ(leg.deciding_bound(), BlockBound(leg));
}

TEST(JudgeMaxima, NoiseThatSitsInOneElementWidensItsBound) {
  ErrorStats outlier = Normal(1e-4);
  outlier.max_elem = 4e-2;
  outlier.sum_sq_elem = 1.1 * 4e-2 * 4e-2;
  Sample setup(Normal(1e-4), {outlier, outlier, outlier});
  EXPECT_NEAR(ElementBound(setup.Judged()), NoiseFactor(1.1, 3, kRisk) * 4e-2,
              1e-9);
}

TEST(JudgeMaxima, NoiseInOneElementOfABlockWidensTheBlocksBound) {
  ErrorStats outlier = Normal(1e-4);
  outlier.max_block_sq_err = 1.1 * 4e-2 * 4e-2;
  outlier.max_abs_err = 4e-2;
  Sample setup(Normal(1e-4), {outlier, outlier, outlier});
  const double largest = std::sqrt(outlier.max_block_sq_err / kCount);
  EXPECT_NEAR(BlockBound(setup.Judged()), NoiseFactor(1.1, 3, kRisk) * largest,
              1e-9);
}

TEST(JudgeMaxima, LuckyNoiseIsMadeUpForByItsRms) {
  // The legs' largest is that of a much smaller sample.
  Sample setup(Normal(1e-2), std::vector<ErrorStats>(3, Normal(1e-2, 1.5)));
  EXPECT_NEAR(ElementBound(setup.Judged()),
              LargestElementFactor(kCount, 3, kRisk) * 1e-2, 1e-9);
  ErrorStats flat = Normal(1e-2);
  flat.max_block_sq_err /= 100;
  flat.max_abs_err /= 10;
  Sample blocks(Normal(1e-2), std::vector<ErrorStats>(3, flat));
  EXPECT_NEAR(BlockBound(blocks.Judged()),
              LargestBlockFactor(kCount, 3, kRisk) * 1e-2 *
                  std::sqrt(static_cast<double>(kCompareBlock) / kCount),
              1e-9);
}

TEST(JudgeMaxima, TheLargestOfTheNoiseLegsCounts) {
  ErrorStats large = Normal(1e-2);
  large.max_elem *= 2;
  large.max_block_sq_err *= 4;
  const ErrorStats small = Normal(1e-2);
  const double element = ElementBound(Sample(small, {large}).Judged());
  const double block = BlockBound(Sample(small, {large}).Judged());
  for (const auto& noise :
       {std::vector{large, small, small}, std::vector{small, large, small}}) {
    const LegJudgement leg = Sample(small, noise).Judged();
    EXPECT_NEAR(ElementBound(leg), element, 1e-9);
    EXPECT_NEAR(BlockBound(leg), block, 1e-9);
  }
}

// Noise that was small by chance says nothing of what sums over ranks round.
TEST(JudgeMaxima, PartialSumsOfManyRanksNeedNoNoiseToBeAllowed) {
  const ErrorStats none = Normal(0);
  Sample setup(none, {none, none, none});
  setup.errors.rounding.candidate_ranks = 8;
  const double sums = PartialSumRounding(setup.errors.rounding);
  const LegJudgement leg = setup.Judged();
  EXPECT_NEAR(ElementBound(leg),
              sums * LargestElementFactor(
                         kCount, std::numeric_limits<int>::max(), kRisk),
              1e-12);
  EXPECT_NEAR(BlockBound(leg),
              kNoiseFactor * sums * 4 *
                  std::sqrt(static_cast<double>(kCompareBlock) / kCount),
              1e-12);
}

TEST(JudgeMaxima, FloorsAdmitOneMoreRounding) {
  ErrorStats none = Normal(0);
  Sample setup(Normal(0), {none, none, none});
  EXPECT_NEAR(ElementBound(setup.Judged()), 2 * kBf16, 1e-15);
  EXPECT_NEAR(
      BlockBound(setup.Judged()),
      kBf16 / 2 * 4 * std::sqrt(static_cast<double>(kCompareBlock) / kCount),
      1e-15);
  const LegJudgement leg = setup.Judged();
  for (const Statistic statistic : {Statistic::kElement, Statistic::kBlock}) {
    const ttrace::Test& test = *leg.Find(statistic);
    EXPECT_EQ(test.expected.origin, Origin::kFloor);
    EXPECT_EQ(test.expected.factor, 1);
    EXPECT_EQ(test.expected.scale, test.bound);
  }
}

TEST(JudgeMaxima, TheFloorOfOneElementIsTheNorms) {
  ErrorStats one;
  one.count = one.mismatched = 1;
  one.sum_sq_ref = one.max_abs_ref = 1;
  const ErrorStats none = one;  // noise that a sum absorbed
  // What a sum of 0.5 that something cancels is rounded by otherwise.
  one.sum_sq_err = 1e-2;
  one.max_abs_err = 1e-1;
  one.max_elem = one.max_abs_err / 2;
  one.sum_sq_elem = one.max_elem * one.max_elem;
  const LegJudgement leg = Sample(one, {none, none, none}).Judged();
  EXPECT_NEAR(ElementHeadroom(leg), leg.Find(Statistic::kNorm)->headroom,
              1e-12);
  EXPECT_LT(ElementHeadroom(leg), 1);
}

TEST(JudgeMaxima, BothEstimatesMustFlag) {
  ErrorStats far = Normal(1e-2);
  far.max_elem = 0.5;
  far.max_block_sq_err *= 100;
  Sample setup(far);
  ErrorStats hp = far;  // the reference is as far from its fp32 leg
  setup.errors.reference_fp32 = hp;
  setup.errors.candidate_fp32 = far;
  EXPECT_LT(ElementHeadroom(setup.Judged()), 1);
  EXPECT_LT(BlockHeadroom(setup.Judged()), 1);
  for (const Statistic statistic : {Statistic::kElement, Statistic::kBlock}) {
    EXPECT_EQ(setup.Judged().Find(statistic)->expected.origin,
              Origin::kReferenceFp32);
  }
  setup.errors.reference_fp32 = Normal(1e-2);
  EXPECT_GT(ElementHeadroom(setup.Judged()), 1);
  EXPECT_GT(BlockHeadroom(setup.Judged()), 1);
  setup.errors.candidate_fp32 =
      Normal(1e-2);  // the candidate is near the truth
  EXPECT_LT(ElementHeadroom(setup.Judged()), 1);
  EXPECT_LT(BlockHeadroom(setup.Judged()), 1);
}

TEST(JudgeMaxima, Fp32LegsAllowForTheirSums) {
  Sample setup(Normal(1e-2));
  setup.errors.rounding.longest_sum = 128;
  const double before = ElementBound(setup.Judged());
  setup.errors.rounding.unit_roundoff = kFp32Roundoff;
  // Of an element one term may be nearly all: sqrt(128), where a norm has 8.
  EXPECT_NEAR(ElementBound(setup.Judged()), std::sqrt(128) * before, 1e-9);
}

TEST(JudgeMaxima, LeavesToTheNormWhatItCannotJudge) {
  Sample without_noise(Normal(1e-2), {});
  EXPECT_FALSE(HasElement(without_noise.Judged()));
  Sample vector(Normal(1e-2));
  vector.errors.vector_gradient = true;
  EXPECT_FALSE(HasElement(vector.Judged()));
  vector.errors.candidate_fp32 = vector.errors.reference_fp32 = Normal(1e-2);
  EXPECT_TRUE(HasElement(vector.Judged()));
  vector.errors.candidate_fp32 = vector.errors.reference_fp32 = std::nullopt;
  vector.errors.rounding.unit_roundoff = kFp32Roundoff;
  EXPECT_TRUE(HasElement(vector.Judged()));
  const ErrorStats small = Normal(1e-2, 4, kCompareBlock);
  Sample one_block(small, {small, small, small});
  EXPECT_TRUE(HasElement(one_block.Judged()));
  EXPECT_FALSE(HasBlock(one_block.Judged()));
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
          std::sqrt(FUpperQuantile(kRisk / count, 1, count * legs));
      const double factor = LargestElementFactor(n, legs, kRisk);
      EXPECT_GE(factor, exact) << n << " " << legs;
      EXPECT_LE(factor, 1.6 * exact) << n << " " << legs;
    }
  }
  // sqrt(2 ln(n / risk)) for large n.
  EXPECT_NEAR(LargestElementFactor(1 << 30, 3, kRisk),
              std::sqrt(2 * std::log(0x1p30 / kRisk)), 1e-3);
}

TEST(LargestBlockFactor, IsNotBelowTheQuantileAndNotFarAbove) {
  for (const int64_t blocks : {1, 2, 16, 256}) {
    const auto count = static_cast<double>(blocks * kCompareBlock);
    const double exact = std::sqrt(FUpperQuantile(
        kRisk / static_cast<double>(blocks), kCompareBlock, count * 3));
    const double factor = LargestBlockFactor(blocks * kCompareBlock, 3, kRisk);
    EXPECT_GE(factor, exact) << blocks;
    EXPECT_LE(factor, 1.3 * exact) << blocks;
  }
  EXPECT_TRUE(std::isinf(LargestBlockFactor(kCompareBlock - 1, 3, kRisk)));
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

// The gradient of a linear of a few rows: a sum of their outer products. What
// arrives adds up to little over the rows, as of a loss that is nearly at rest,
// and inputs are much alike.
class FewRows {
 public:
  static constexpr size_t kWidth = 32;
  static constexpr size_t kElements = kWidth * kWidth;
  using Gradient = std::vector<double>;

  FewRows(std::mt19937* rng, size_t rows) : rows_(rows, Gradient(kElements)) {
    std::normal_distribution<double> normal;
    std::vector<double> arriving(rows);
    for (size_t out = 0; out < kWidth; ++out) {
      double mean = 0;
      for (double& g : arriving) {
        g = normal(*rng);
        mean += g / static_cast<double>(rows);
      }
      for (size_t row = 0; row < rows; ++row) {
        for (size_t in = 0; in < kWidth; ++in) {
          rows_[row][out * kWidth + in] = arriving[row] - mean;
        }
      }
    }
    for (size_t in = 0; in < kWidth; ++in) {
      const double alike = normal(*rng);
      for (Gradient& row : rows_) {
        const double x = alike + normal(*rng) / 4;
        for (size_t out = 0; out < kWidth; ++out) row[out * kWidth + in] *= x;
      }
    }
  }

  // Of rows up to each of `cuts`, as they add up where each part is rounded,
  // and what is known of the parts.
  Gradient SumOf(const std::vector<size_t>& cuts, GradientParts* parts) const {
    Gradient sum(kElements);
    size_t row = 0;
    for (const size_t cut : cuts) {
      Gradient part(kElements);
      for (; row < cut; ++row) {
        for (size_t i = 0; i < kElements; ++i) part[i] += rows_[row][i];
      }
      double largest = 0;
      for (size_t i = 0; i < kElements; ++i) {
        const double rounded = RoundTo(part[i], DType::kBF16);
        sum[i] += rounded;
        parts->squares += rounded * rounded;
        largest = std::max(largest, std::fabs(rounded));
      }
      parts->largest += largest * largest;
    }
    return sum;
  }

 private:
  std::vector<Gradient> rows_;
};

ErrorStats StatsOf(const FewRows::Gradient& candidate,
                   const FewRows::Gradient& reference) {
  ErrorStats stats;
  stats.count = static_cast<int64_t>(reference.size());
  for (const double x : reference) {
    stats.sum_sq_ref += x * x;
    stats.max_abs_ref = std::max(stats.max_abs_ref, std::fabs(x));
  }
  const double rms =
      std::sqrt(stats.sum_sq_ref / static_cast<double>(stats.count));
  double block = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    if (i % kCompareBlock == 0) block = 0;
    const double err = candidate[i] - reference[i];
    const double elem = std::fabs(err) / (std::fabs(reference[i]) + rms);
    stats.mismatched += err != 0;
    stats.sum_sq_err += err * err;
    stats.sum_sq_elem += elem * elem;
    stats.max_abs_err = std::max(stats.max_abs_err, std::fabs(err));
    stats.max_elem = std::max(stats.max_elem, elem);
    block += err * err;
    stats.max_block_sq_err = std::max(stats.max_block_sq_err, block);
  }
  return stats;
}

// A quarter and the rest, against halves: noise shows nothing of their
// rounding.
TEST(JudgeMaxima, PartsOfFewRowsAreRoundedAsTheyAre) {
  std::mt19937 rng(4);
  int flagged_unknown = 0;
  double closest = 0;
  for (int round = 0; round < 100; ++round) {
    const FewRows rows(&rng, 8);
    GradientParts reference;
    GradientParts candidate;
    const FewRows::Gradient trusted = rows.SumOf({2, 8}, &reference);
    const FewRows::Gradient other = rows.SumOf({1, 4, 6, 8}, &candidate);
    const ErrorStats none = StatsOf(trusted, trusted);
    Sample sample(StatsOf(other, trusted), {none, none, none});
    sample.errors.rounding.reference_summands = 2;
    sample.errors.rounding.candidate_summands = 4;
    flagged_unknown += sample.Judged().headroom > 1;
    const double mean = none.sum_sq_ref / FewRows::kElements;
    sample.errors.parts = {
        std::max(reference.squares, candidate.squares) / none.sum_sq_ref,
        std::max(reference.largest, candidate.largest) / mean};
    closest = std::max(closest, sample.Judged().headroom);
  }
  EXPECT_LT(closest, 0.9);
  EXPECT_GT(closest, 0.2) << "bounds are no wider than they need to be";
  EXPECT_GT(flagged_unknown, 0) << "parts need not be known";
}

}  // namespace
}  // namespace ttrace::maxima_test
