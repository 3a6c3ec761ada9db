#include "src/judge/rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/judge/constants.h"

namespace ttrace::rule_test {
namespace {

constexpr double kBf16 = 0x1p-8;
constexpr double kRisk = 1e-6;

// Statistics of `count` elements with the given relative error.
ErrorStats StatsWith(double rel_err, int64_t count = 4096) {
  ErrorStats stats;
  stats.count = count;
  stats.mismatched = rel_err > 0 ? count : 0;
  stats.sum_sq_ref = 1;
  stats.sum_sq_err = rel_err * rel_err;
  return stats;
}

LegErrors Errors(double err, const std::vector<double>& noise) {
  LegErrors errors;
  errors.leg = "real";
  errors.stats = StatsWith(err);
  for (const double leg : noise) errors.noise.push_back(StatsWith(leg));
  errors.rounding.unit_roundoff = kBf16;
  errors.risk = kRisk;
  return errors;
}

TEST(JudgeLeg, HeadroomIsErrorOverTwiceTheNoise) {
  const LegJudgement leg = JudgeLeg(Errors(3e-2, {1e-2, 1e-2, 1e-2}));
  EXPECT_NEAR(leg.bound, 2e-2, 1e-12);
  EXPECT_NEAR(leg.headroom, 1.5, 1e-9);
  EXPECT_TRUE(leg.checkable);
}

// An error that is between two others.
ErrorStats Estimate(double low, double value, double high) {
  ErrorStats stats = StatsWith(value);
  stats.sq_err_below = value * value - low * low;
  stats.sq_err_above = high * high - value * value;
  return stats;
}

TEST(JudgeEstimates, TheBoundMustLieOutsideOfTheInterval) {
  const auto judge = [](double low, double value, double high) {
    LegErrors errors = Errors(0, {1e-2, 1e-2, 1e-2});  // a bound of 2e-2
    errors.stats = Estimate(low, value, high);
    return JudgeEstimates(errors);
  };
  const LegJudgement out = judge(2.1e-2, 3e-2, 4e-2);
  EXPECT_TRUE(out.checkable);
  EXPECT_NEAR(out.headroom, 1.05, 1e-9) << "by the least that it can be";
  const LegJudgement in = judge(1e-2, 1.5e-2, 1.9e-2);
  EXPECT_TRUE(in.checkable);
  EXPECT_NEAR(in.headroom, 0.95, 1e-9) << "by the most";
  for (const double value : {1.5e-2, 2.5e-2}) {
    const LegJudgement between = judge(1e-2, value, 3e-2);
    EXPECT_FALSE(between.checkable);
    EXPECT_TRUE(between.uncertain);
    const Reason why = WhyNotCheckable(between);
    EXPECT_EQ(why.kind, ReasonKind::kUncertain);
    EXPECT_NEAR(why.numbers.at(0), 1e-2, 1e-9);
    EXPECT_NEAR(why.numbers.at(1), 3e-2, 1e-9);
  }
}

TEST(JudgeEstimates, NoiseIsAsLargeForAFaultAndAsSmallForAPassAsItCanBe) {
  const auto judge = [](double value) {
    LegErrors errors = Errors(value, {});
    errors.noise.assign(3, Estimate(0.9e-2, 1e-2, 1.1e-2));
    return JudgeEstimates(errors);
  };
  EXPECT_GT(judge(2.3e-2).headroom, 1) << "over 2.2e-2";
  EXPECT_TRUE(judge(2.1e-2).uncertain);
  EXPECT_TRUE(judge(1.9e-2).uncertain);
  EXPECT_TRUE(judge(1.7e-2).checkable) << "under 1.8e-2";
}

TEST(JudgeEstimates, WithoutNoiseNothingIsSaid) {
  LegErrors errors = Errors(0, {});
  errors.stats = Estimate(1e-2, 2e-2, 3e-2);
  EXPECT_FALSE(JudgeEstimates(errors).checkable);
  EXPECT_FALSE(JudgeEstimates(errors).uncertain);
}

TEST(JudgeLeg, BothEstimatesMustFlag) {
  LegErrors errors = Errors(6e-2, {1e-2, 1e-2, 1e-2});
  errors.candidate_fp32 = StatsWith(3e-2);
  errors.reference_fp32 =
      StatsWith(3e-2);  // the reference is as far from the truth
  EXPECT_NEAR(JudgeLeg(errors).headroom, 0.5, 1e-9);
  EXPECT_EQ(JudgeLeg(errors).deciding()->expected.origin,
            Origin::kReferenceFp32);
  errors.candidate_fp32 = StatsWith(9e-2);
  EXPECT_NEAR(JudgeLeg(errors).headroom, 1.5, 1e-9);
}

TEST(JudgeLeg, FloorAdmitsOneMoreRounding) {
  const LegJudgement leg = JudgeLeg(Errors(kBf16 / 4, {0, 0, 0}));
  EXPECT_NEAR(leg.headroom, 0.5, 1e-9);
  EXPECT_GT(JudgeLeg(Errors(kBf16, {0, 0, 0})).headroom, 1);
}

TEST(JudgeLeg, WithoutNoiseLegsOnlyBitEqualityIsCheckable) {
  EXPECT_FALSE(JudgeLeg(Errors(1e-3, {})).checkable);
  EXPECT_TRUE(JudgeLeg(Errors(0, {})).checkable);
}

TEST(JudgeLeg, AWideBoundIsNotCheckable) {
  EXPECT_FALSE(JudgeLeg(Errors(1e-3, {0.15, 0.15, 0.15})).checkable);
  EXPECT_TRUE(JudgeLeg(Errors(1e-3, {0.05, 0.05, 0.05})).checkable);
}

TEST(JudgeLeg, WhatTheReferenceDoesNotRepeatWidensTheBound) {
  LegErrors errors = Errors(3e-2, {1e-2, 1e-2, 1e-2});
  EXPECT_EQ(JudgeLeg(errors).deciding()->expected.origin, Origin::kNoise);
  errors.repeat = StatsWith(4e-2);
  EXPECT_LT(JudgeLeg(errors).headroom, 0.5);
  EXPECT_EQ(JudgeLeg(errors).deciding()->expected.origin, Origin::kRepeat);
}

TEST(JudgeLeg, VectorGradientsAreWiderOnlyWithoutFp32Leg) {
  LegErrors errors = Errors(6e-2, {1e-2, 1e-2, 1e-2});
  errors.vector_gradient = true;
  EXPECT_LT(JudgeLeg(errors).headroom, 1);
  errors.candidate_fp32 = StatsWith(6e-2);
  errors.reference_fp32 = StatsWith(1e-2);
  EXPECT_GT(JudgeLeg(errors).headroom, 1);
  errors.candidate_fp32 = errors.reference_fp32 = std::nullopt;
  errors.rounding.unit_roundoff = 0x1p-24;
  EXPECT_GT(JudgeLeg(errors).headroom, 1);
}

TEST(JudgeLeg, Fp32SumsRoundOncePerTermAndBf16SumsDoNot) {
  LegErrors errors = Errors(3e-6, {1e-6, 1e-6, 1e-6});
  errors.rounding.longest_sum = 128;  // sqrt(128 / 2) = 8
  EXPECT_NEAR(JudgeLeg(errors).headroom, 3e-6 / (2 * kBf16 / 4), 1e-9);
  errors.rounding.unit_roundoff = 0x1p-24;
  EXPECT_NEAR(JudgeLeg(errors).headroom, 3.0 / (2 * 8), 1e-9);
  errors.rounding.longest_sum = 1;
  EXPECT_NEAR(JudgeLeg(errors).headroom, 1.5, 1e-9);
}

TEST(JudgeLeg, Bf16SumsOverRanksRoundEachPartialSum) {
  LegErrors errors = Errors(3e-2, {2e-2, 2e-2, 2e-2});
  const double alone = JudgeLeg(errors).bound;
  errors.rounding.candidate_ranks = 2;  // 1 + 1 x 4 / 4 = 2 roundings, and 1
  EXPECT_NEAR(JudgeLeg(errors).bound, alone * std::sqrt(1.5), 1e-9);
  EXPECT_EQ(JudgeLeg(errors).deciding()->expected.summed_ranks, 2);
  errors.rounding.candidate_ranks = 8;  // 1 + 7 x 10 / 16 = 5.375
  errors.rounding.reference_ranks = 2;
  EXPECT_NEAR(JudgeLeg(errors).bound, alone * std::sqrt(7.375 / 2), 1e-9);
  // An fp32 leg's longest sums are inside its operations.
  errors.rounding.unit_roundoff = 0x1p-24;
  errors.rounding.longest_sum = 1;
  EXPECT_NEAR(JudgeLeg(errors).bound, alone, 1e-9);
}

TEST(JudgeLeg, PartialSumsOfManyRanksNeedNoNoiseToBeAllowed) {
  // Noise that was small by chance.
  LegErrors errors = Errors(3.9e-3, {5e-4, 5e-4});
  errors.rounding.unit_roundoff = kBf16;
  EXPECT_GT(JudgeLeg(errors).headroom, 1);
  errors.rounding.candidate_ranks = 8;
  EXPECT_LT(JudgeLeg(errors).headroom, 1);
  errors.stats = StatsWith(2e-2);
  EXPECT_GT(JudgeLeg(errors).headroom, 1);
}

TEST(JudgeLeg, AScalarNeedsAMuchLargerErrorToBeFlagged) {
  LegErrors errors = Errors(0, {});
  errors.stats = StatsWith(2e-2, 1);
  errors.noise.assign(3, StatsWith(1e-3, 1));
  EXPECT_LT(JudgeLeg(errors).headroom, 1);
}

TEST(JudgeLeg, AVectorGradientAloneIsAllowedTheReferencesOwnRounding) {
  LegErrors errors = Errors(0.05, {0.005, 0.005});
  errors.rounding.unit_roundoff = 0x1p-8;
  errors.vector_gradient = true;
  const LegJudgement eight_times_noise = JudgeLeg(errors);
  EXPECT_GT(eight_times_noise.headroom, 1);
  errors.reference_fp32 = StatsWith(0.05);
  const LegJudgement rounding = JudgeLeg(errors);
  EXPECT_NEAR(rounding.bound, 2 * std::sqrt(2) * 0.05, 1e-12);
  EXPECT_NEAR(rounding.headroom, 0.05 / rounding.bound, 1e-12);
  // Where that is less, noise decides as before; and never for matrices.
  errors.reference_fp32 = StatsWith(0.001);
  EXPECT_EQ(JudgeLeg(errors).bound, eight_times_noise.bound);
  errors.reference_fp32 = StatsWith(0.05);
  errors.vector_gradient = false;
  EXPECT_LT(JudgeLeg(errors).bound, 0.05);
}

// More tokens in one sum of the candidate: it rounds more than the reference.
TEST(JudgeLeg, LongerSumsOverTokensRoundMore) {
  LegErrors errors = Errors(0.1, {0.005, 0.005, 0.005});
  errors.vector_gradient = true;
  errors.reference_fp32 = StatsWith(0.02);
  const double alone = JudgeLeg(errors).bound;
  EXPECT_NEAR(alone, 2 * std::sqrt(2) * 0.02, 1e-12);
  errors.candidate_fp32 = StatsWith(0.1);
  EXPECT_GT(JudgeLeg(errors).headroom, 1);
  errors.rounding.reference_tokens = 5;
  errors.rounding.candidate_tokens = 20;
  EXPECT_NEAR(JudgeLeg(errors).headroom, 0.1 / (2 * 4 * 0.02), 1e-9);
  EXPECT_EQ(JudgeLeg(errors).deciding()->expected.origin,
            Origin::kReferenceFp32);
  errors.candidate_fp32.reset();
  EXPECT_NEAR(JudgeLeg(errors).bound, 2 * std::sqrt(17) * 0.02, 1e-12);
  errors.reference_fp32.reset();
  EXPECT_NEAR(JudgeLeg(errors).bound, 4 * 8 * 0.005, 1e-12);
  // Shorter ones excuse nothing, nor do those of any other tensor, nor in fp32.
  errors.reference_fp32 = StatsWith(0.02);
  errors.rounding.candidate_tokens = 2;
  EXPECT_EQ(JudgeLeg(errors).bound, alone);
  errors.rounding.candidate_tokens = 20;
  errors.vector_gradient = false;
  EXPECT_NEAR(JudgeLeg(errors).bound, 2 * 0.005, 1e-12);
  errors.vector_gradient = true;
  errors.rounding.unit_roundoff = 0x1p-24;
  EXPECT_NEAR(JudgeLeg(errors).bound, 2 * 0.005, 1e-12);
}

// Where the running sum may have left its terms behind, which a shorter one
// does not tell.
TEST(JudgeLeg, MuchLongerSumsOverTokensAreNotCheckable) {
  LegErrors errors = Errors(0.1, {0.005, 0.005, 0.005});
  errors.vector_gradient = true;
  errors.reference_fp32 = StatsWith(0.005);
  errors.candidate_fp32 = StatsWith(0.1);
  errors.rounding.reference_tokens = 10;
  errors.rounding.candidate_tokens = 50;
  LegJudgement leg = JudgeLeg(errors);
  EXPECT_NEAR(leg.bound, kBf16 * 51 / 2, 1e-12);
  EXPECT_EQ(leg.deciding()->expected.origin, Origin::kLongSum);
  EXPECT_TRUE(leg.checkable);
  errors.rounding.candidate_tokens = 1000;
  EXPECT_FALSE(JudgeLeg(errors).checkable);
  errors.vector_gradient = false;
  EXPECT_TRUE(JudgeLeg(errors).checkable);
}

// Values of some units of the smallest spacing, which noise of a relative size
// does not move.
TEST(JudgeLeg, TheSpacingOfTheSmallestNumbersNeedsNoNoise) {
  LegErrors errors = Errors(4e-2, {0, 0, 0});
  errors.rounding.unit_roundoff = 0x1p-11;
  EXPECT_GT(JudgeLeg(errors).headroom, 1);
  // An rms of 1/64 in 4096 elements, whose squares sum up to 1.
  errors.rounding.reference_spacing = errors.rounding.candidate_spacing =
      0.1 / 64;
  const double rounding = 0.1 / std::sqrt(6.0);
  EXPECT_NEAR(JudgeLeg(errors).bound, 2 * rounding, 1e-9);
  EXPECT_EQ(JudgeLeg(errors).deciding()->expected.origin, Origin::kFloor);
  // Noise that was made by the reference's spacing is that of the candidate's.
  errors.noise.assign(3, StatsWith(0.04));
  EXPECT_NEAR(JudgeLeg(errors).bound, 2 * std::hypot(0.04, rounding), 1e-9);
  errors.rounding.candidate_spacing *= 2;
  EXPECT_NEAR(JudgeLeg(errors).bound,
              2 * std::hypot(0.08, 0.1 * std::sqrt(5.0 / 12)), 1e-4);
}

// Of a table, the reference's own rounding says it.
TEST(JudgeLeg, ATableWhoseRoundingIsKnownNeedsNoWiderFactor) {
  LegErrors errors = Errors(0.05, {0.005, 0.005});
  errors.lookup_gradient = true;
  EXPECT_NEAR(JudgeLeg(errors).bound, 8 * 0.005, 1e-12);
  errors.reference_fp32 = StatsWith(1e-3);
  EXPECT_NEAR(JudgeLeg(errors).bound, 2 * 0.005, 1e-12);
}

// Of terms a million times as large as their sum: noise of 0.5 of the sum is
// their rounding.
LegErrors ZeroSum(double err, double noise) {
  LegErrors errors = Errors(err, {noise, noise, noise});
  errors.rounding.unit_roundoff = kFp32Roundoff;
  errors.terms_sq = 1e12;
  return errors;
}

TEST(JudgeLeg, ASumWhoseTermsCancelIsJudgedBesideThem) {
  const LegJudgement leg = JudgeLeg(ZeroSum(1.5, 0.8));
  EXPECT_TRUE(leg.checkable);
  EXPECT_TRUE(leg.zero_sum);
  EXPECT_NEAR(leg.bound, 1.6, 1e-9);
  EXPECT_TRUE(leg.deciding()->expected.zero_sum);
  // A thousandth of the terms, where nothing should be left.
  EXPECT_GT(JudgeLeg(ZeroSum(1e3, 0.8)).headroom, 1);
  EXPECT_TRUE(JudgeLeg(ZeroSum(1e3, 0.8)).checkable);
}

TEST(JudgeLeg, ABoundThatIsWideBesideTheTermsAsWellIsNotCheckable) {
  EXPECT_FALSE(JudgeLeg(ZeroSum(1.5, 0.11e6)).checkable);
  EXPECT_TRUE(JudgeLeg(ZeroSum(1.5, 0.09e6)).checkable);
  LegErrors unknown = ZeroSum(1.5, 0.8);
  unknown.terms_sq = 0;
  EXPECT_FALSE(JudgeLeg(unknown).checkable);
}

// What is certainly not zero may be half of what it should be.
TEST(JudgeLeg, ASumThatIsLargerThanItsBoundIsNoZero) {
  const LegJudgement leg = JudgeLeg(ZeroSum(0.3, 0.2));
  EXPECT_NEAR(leg.bound, 0.4, 1e-9);
  EXPECT_FALSE(leg.zero_sum);
  EXPECT_FALSE(leg.checkable);
}

TEST(JudgeLeg, WhatIsLeftOfTermsIsRoundedAsTheyAre) {
  LegErrors errors = Errors(100 * kBf16 / 4, {0, 0, 0});
  EXPECT_GT(JudgeLeg(errors).headroom, 1);
  errors.terms_sq = 1e4;
  EXPECT_NEAR(JudgeLeg(errors).headroom, 0.5, 1e-9);
  // Partial sums over ranks as well.
  const double whole = errors.unseen_rounding();
  errors.rounding.candidate_ranks = 2;
  const double cancelled = errors.unseen_rounding();
  errors.terms_sq = 0;
  EXPECT_NEAR(cancelled - whole, 100 * errors.unseen_rounding(), 1e-9);
  // Terms that are smaller than their sum say nothing.
  errors.terms_sq = 0.1;
  EXPECT_EQ(errors.cancelled(), 1);
}

TEST(JudgeLeg, ASumIsRoundedAsThePartsThatRanksAndMicroBatchesAdd) {
  LegErrors errors = Errors(100 * kBf16 / 4, {0, 0, 0});
  EXPECT_GT(JudgeLeg(errors).headroom, 1);
  errors.parts.squares = 1e4;
  EXPECT_NEAR(JudgeLeg(errors).headroom, 0.5, 1e-9);
  errors.terms_sq = 4e4;  // the larger of the two
  EXPECT_NEAR(JudgeLeg(errors).headroom, 0.25, 1e-9);
  errors.stats.sum_sq_ref *= 9;  // a part of another size
  EXPECT_EQ(errors.cancelled(), 100);
}

// A common factor is one error, however many elements it moves.
TEST(IndependentErrors, AreFewWhereNoiseIsACommonFactor) {
  ErrorStats leg = StatsWith(1e-2);
  EXPECT_NEAR(IndependentErrors({leg, leg, leg}), 4096, 1e-6);
  leg.sum_err_ref = 1e-2;  // all of the error is along the reference
  EXPECT_NEAR(IndependentErrors({leg, leg, leg}), 1, 1e-6);
  leg.sum_err_ref = 5e-3;  // a quarter of its square
  EXPECT_NEAR(IndependentErrors({leg, leg, leg}), 16, 0.2);
}

TEST(IndependentErrors, AreFewWhereNoiseSitsInFewElements) {
  ErrorStats leg = StatsWith(1e-2);
  leg.max_abs_err = 1e-2;  // one element is all of it
  EXPECT_NEAR(IndependentErrors({leg}), 2 * std::log(4096), 1e-6);
}

TEST(JudgePart, IsJudgedByTheNoiseOfThatPart) {
  LegErrors part = Errors(3e-2, {1e-2, 1e-2, 1e-2});
  auto test = JudgePart(part);
  ASSERT_TRUE(test.has_value());
  EXPECT_EQ(test->statistic, Statistic::kPiece);
  EXPECT_NEAR(test->headroom, 1.5, 1e-9);
  part.noise.assign(3, StatsWith(0.5));
  EXPECT_FALSE(JudgePart(part).has_value()) << "a bound that says nothing";
  part.noise.clear();
  EXPECT_FALSE(JudgePart(part).has_value());
  // Of zeros, any error is infinitely many times as large.
  part = Errors(3e-2, {1e-2, 1e-2, 1e-2});
  part.stats.sum_sq_ref = 0;
  EXPECT_FALSE(JudgePart(part).has_value());
}

}  // namespace
}  // namespace ttrace::rule_test
