#include "src/judge/projection.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/judge/constants.h"
#include "src/judge/small_sample.h"

namespace ttrace::projection_test {
namespace {

constexpr int64_t kCount = 1 << 20;
constexpr double kRisk = 1e-7;

// An error of the given norm, `factor` of it along the reference.
ErrorStats With(double rel_err, double factor) {
  ErrorStats stats;
  stats.count = kCount;
  stats.mismatched = kCount;
  stats.sum_sq_ref = 1;
  stats.sum_sq_err = rel_err * rel_err;
  stats.sum_err_ref = factor;
  return stats;
}

LegErrors Fp32(const ErrorStats& candidate, double noise_factor) {
  LegErrors errors;
  errors.stats = candidate;
  errors.noise.assign(3, With(1e-6, noise_factor));
  errors.rounding.unit_roundoff = kFp32Roundoff;
  // 4.2 million tokens: the norm's bound is 1,448 times the noise.
  errors.rounding.longest_sum = 4'200'000;
  errors.risk = kRisk;
  return errors;
}

LegJudgement Judged(const LegErrors& errors, double pooled = 0) {
  LegJudgement leg = JudgeLeg(errors);
  JudgeProjection(errors, pooled, &leg);
  return leg;
}

TEST(JudgeProjection, FlagsACommonFactorThatTheNormAdmits) {
  const LegJudgement leg = Judged(Fp32(With(2e-3, 2e-3), 1e-9));
  EXPECT_LT(leg.Find(Statistic::kNorm)->headroom, 1);
  EXPECT_GT(leg.Find(Statistic::kProjection)->headroom, 1);
  EXPECT_EQ(leg.deciding()->statistic, Statistic::kProjection);
}

TEST(JudgeProjection, AllowsWhatNoiseLegsShow) {
  // They move the whole tensor by a factor of their own: ten times as much is
  // one more draw of three.
  LegErrors errors = Fp32(With(2e-4, 1e-4), 0);
  errors.noise.assign(3, With(1e-4, 1e-5));
  errors.rounding.longest_sum = 1;
  const LegJudgement leg = Judged(errors);
  const ttrace::Test* projection = leg.Find(Statistic::kProjection);
  EXPECT_LT(projection->headroom, 1);
  EXPECT_EQ(projection->expected.origin, Origin::kNoise);
  EXPECT_NEAR(projection->bound, SampleFactor(3, kRisk) * 1e-5, 1e-12);
}

TEST(JudgeProjection, PoolsLegsThatWereLucky) {
  LegErrors errors = Fp32(With(2e-4, 1e-4), 0);
  const double alone = Judged(errors).Find(Statistic::kProjection)->bound;
  const double pooled =
      Judged(errors, 1e-10).Find(Statistic::kProjection)->bound;
  EXPECT_GT(pooled, 2 * alone);
}

TEST(JudgeProjection, AdmitsRoundingsOfScalars) {
  LegErrors errors = Fp32(With(1e-7, 3 * kFp32Roundoff), 0);
  errors.noise.assign(3, With(0, 0));
  errors.rounding.longest_sum = 1;
  EXPECT_LT(Judged(errors).Find(Statistic::kProjection)->headroom, 1);
  errors.stats = With(1e-6, 10 * kFp32Roundoff);
  EXPECT_GT(Judged(errors).Find(Statistic::kProjection)->headroom, 1);
}

TEST(JudgeProjection, SaysNothingWithoutNoiseOrOfZeros) {
  LegErrors errors = Fp32(With(1e-3, 1e-3), 0);
  errors.noise.clear();
  EXPECT_EQ(Judged(errors).Find(Statistic::kProjection), nullptr);
  errors = Fp32(With(1e-3, 1e-3), 0);
  errors.stats.sum_sq_ref = 0;
  EXPECT_EQ(Judged(errors).Find(Statistic::kProjection), nullptr);
}

}  // namespace
}  // namespace ttrace::projection_test
