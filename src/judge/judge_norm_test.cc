#include "src/judge/judge_norm.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ttrace {
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

TEST(JudgeReportedNorm, WhatIsNotKnownIsNotJudged) {
  EXPECT_EQ(Verdict(std::nullopt), TensorVerdict::kNotCheckable);
  ReportedNorm facts = Facts(2, 1, 1);
  facts.unknown = "experts.weight";
  EXPECT_EQ(Verdict(facts), TensorVerdict::kNotCheckable);
}

}  // namespace
}  // namespace ttrace
