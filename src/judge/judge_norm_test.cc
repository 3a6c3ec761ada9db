#include "src/judge/judge_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace ttrace::judge_norm_test {
namespace {

ReportedNorm Facts(double reported, double exact,
                   std::optional<double> primitive) {
  ReportedNorm facts;
  facts.reported = reported;
  facts.exact = exact;
  facts.primitive = primitive;
  facts.parts = 50;
  facts.largest_part = 8'000'000;
  return facts;
}

TensorVerdict Verdict(const std::optional<ReportedNorm>& facts) {
  return JudgeReportedNorm(facts, TensorJudgement{}, 1e-7).verdict;
}

// torch's norm of 8e6 elements is low by 2e-4.
TEST(JudgeReportedNorm, ExpectsWhatThePrimitiveGives) {
  EXPECT_EQ(Verdict(Facts(1 - 2e-4, 1, 1 - 2e-4)),
            TensorVerdict::kBitwiseEqual);
  EXPECT_EQ(Verdict(Facts(1 - 2e-4 + 1e-7, 1, 1 - 2e-4)),
            TensorVerdict::kWithin);
}

// A shard that lacks a two thousandth of the norm.
TEST(JudgeReportedNorm, AMissingShardIsFlaggedThoughTheLibraryLosesAsMuch) {
  EXPECT_EQ(Verdict(Facts(1 - 5e-4, 1, 1 - 2e-4)), TensorVerdict::kDiverged);
}

TEST(JudgeReportedNorm, WithoutThePrimitiveALossOfTheLibraryIsNoFault) {
  EXPECT_NE(Verdict(Facts(1 - 2e-4, 1, std::nullopt)),
            TensorVerdict::kDiverged);
}

TEST(JudgeReportedNorm, ANormInBf16IsRoundedToBf16) {
  ReportedNorm facts = Facts(1.0039, 1, 1);
  EXPECT_EQ(Verdict(facts), TensorVerdict::kDiverged);
  facts.dtype = DType::kBF16;
  EXPECT_NE(Verdict(facts), TensorVerdict::kDiverged);
  facts.reported = 2;
  EXPECT_EQ(Verdict(facts), TensorVerdict::kDiverged);
}

// An optimizer that copies gradients of bfloat16 to fp32 takes the norm of the
// copies, a loop takes that of what it has, each rounded to bfloat16.
TEST(JudgeReportedNorm, OfLowPrecisionEitherNormOfThePrimitiveMayBeTaken) {
  ReportedNorm facts = Facts(1, 1, 1);
  facts.rounded = 1.0019;
  EXPECT_EQ(Verdict(facts), TensorVerdict::kBitwiseEqual);
  facts.reported = 1.0019;
  EXPECT_EQ(Verdict(facts), TensorVerdict::kBitwiseEqual);
  for (const double wrong : {0.9981, 1.0009, 1.0038}) {
    facts.reported = wrong;
    EXPECT_EQ(Verdict(facts), TensorVerdict::kDiverged) << wrong;
  }
}

TEST(JudgeReportedNorm, OfAPendingSumTheLibraryMayLoseWhatAnySumLoses) {
  ReportedNorm facts = Facts(1 + 1e-4, 1, 1);
  EXPECT_EQ(Verdict(facts), TensorVerdict::kDiverged);
  facts.largest_sum = 4096;
  EXPECT_NE(Verdict(facts), TensorVerdict::kDiverged);
  facts.reported = 1 + 1e-3;
  EXPECT_EQ(Verdict(facts), TensorVerdict::kDiverged);
}

TEST(JudgeReportedNorm, OfGradientsThatAreNotFiniteItIsNeither) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double reported : {inf, nan}) {
    for (const double gradients : {inf, nan}) {
      EXPECT_EQ(Verdict(Facts(reported, gradients, std::nullopt)),
                TensorVerdict::kNotCheckable);
      EXPECT_EQ(Verdict(Facts(reported, gradients, gradients)),
                TensorVerdict::kBitwiseEqual);
    }
    EXPECT_EQ(Verdict(Facts(reported, 1, 1)), TensorVerdict::kDiverged);
    EXPECT_EQ(Verdict(Facts(1, reported, reported)), TensorVerdict::kDiverged);
  }
}

// The primitive may have lost all of it.
TEST(JudgeReportedNorm, ABoundThatSaysNothingLeavesItOpen) {
  EXPECT_EQ(Verdict(Facts(2, 1, std::nullopt)), TensorVerdict::kNotCheckable);
  ReportedNorm small = Facts(2, 1, std::nullopt);
  small.largest_part = 1000;
  EXPECT_EQ(Verdict(small), TensorVerdict::kDiverged);
}

TEST(JudgeReportedNorm, RanksThatReportOtherNormsStayAFinding) {
  TensorJudgement differ;
  differ.verdict = TensorVerdict::kDiverged;
  differ.replicas_differ = true;
  for (const auto& facts : std::vector<std::optional<ReportedNorm>>{
           std::nullopt, Facts(2, 1, std::nullopt), Facts(1, 1, 1)}) {
    EXPECT_EQ(JudgeReportedNorm(facts, differ, 1e-7).verdict,
              TensorVerdict::kDiverged);
  }
}

TEST(JudgeReportedNorm, OtherNormsOfOtherGradientsAreTheGradientsDoing) {
  TensorJudgement differ;
  differ.Conclude(Flagged({1}, {}));
  differ.replicas_differ = true;
  const auto right = JudgeReportedNorm(Facts(1, 1, 1), differ, 1e-7);
  EXPECT_TRUE(right.diverged());
  EXPECT_EQ(right.headroom, 0);
  EXPECT_EQ(right.ranks, std::vector<int>{1});
  const auto wrong = JudgeReportedNorm(Facts(2, 1, 1), differ, 1e-7);
  EXPECT_GT(wrong.headroom, 1);
  EXPECT_EQ(wrong.reason.kind, ReasonKind::kReportedNorm);
  EXPECT_EQ(wrong.ranks, std::vector<int>{1});
}

TEST(JudgeReportedNorm, OfADamagedNormNothingIsSaid) {
  TensorJudgement damaged;
  damaged.verdict = TensorVerdict::kNotCheckable;
  damaged.reason = Because(ReasonKind::kDamaged);
  const auto judged = JudgeReportedNorm(Facts(2, 1, 1), damaged, 1e-7);
  EXPECT_EQ(judged.verdict, TensorVerdict::kNotCheckable);
  EXPECT_EQ(judged.reason.kind, ReasonKind::kDamaged);
}

TEST(JudgeReportedNorm, WhatIsNotKnownIsNotJudged) {
  EXPECT_EQ(Verdict(std::nullopt), TensorVerdict::kNotCheckable);
  ReportedNorm facts = Facts(2, 1, 1);
  facts.unknown = "experts.weight";
  const auto judged = JudgeReportedNorm(facts, TensorJudgement{}, 1e-7);
  EXPECT_EQ(judged.verdict, TensorVerdict::kNotCheckable);
  EXPECT_EQ(judged.reason.detail, "experts.weight");
}

}  // namespace
}  // namespace ttrace::judge_norm_test
