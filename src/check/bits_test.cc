// Whether two runs are the same bit for bit: no tolerance, and no reruns.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "src/check/testing/check_fixture.h"
#include "src/judge/reason_words.h"

namespace ttrace::bits_test {
namespace {

using testing::HasSubstr;

class BitsTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    bitwise_ = true;
    candidate_.noise = 0;
  }
};

TEST_F(BitsTest, RunsWithoutRerunsAreTheSameComputation) {
  reference_.legs = candidate_.legs = {"real"};
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kBitwiseEqual) << result.reason;
  EXPECT_THAT(result.reason, HasSubstr("bit for bit: all"));
  EXPECT_TRUE(result.bitwise);
}

// What a tolerance allows is another computation.
TEST_F(BitsTest, TheLastBitOfOneElementIsADifference) {
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg& leg,
                        int64_t index, float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput && rank == 0 && leg == kReal &&
        index == 3) {
      *value = std::bit_cast<float>(std::bit_cast<uint32_t>(*value) ^ 1U);
    }
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  const Culprit& first = result.culprits.front();
  EXPECT_EQ(first.fqn, "fc");
  EXPECT_EQ(first.tensor.role, Role::kOutput);
  EXPECT_TRUE(first.classes.empty());
  EXPECT_TRUE(first.contradictions.empty());
  EXPECT_THAT(first.where, HasSubstr("its 1 input is equal"));
  EXPECT_EQ(first.ranks, (std::vector<int>{0}));
  EXPECT_TRUE(result.contested.empty());
  const TensorJudgement& t = Find(result, "fc", Role::kOutput);
  EXPECT_THAT(ReasonWords(t.reason), HasSubstr("1 of "));
  ASSERT_EQ(t.legs.size(), 1u);
  EXPECT_EQ(t.legs[0].leg, kReal);
}

TEST_F(BitsTest, TheNormOfGradientsIsComparedAsTheNumberThatItIs) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->extra = {
        {"", Role::kGradNorm, "", Pass::kOptimizer, {1, 1}, {}, -1, {}}};
  }
  EXPECT_EQ(Check().verdict, Verdict::kBitwiseEqual);
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kGradNorm) *value *= 1 + 0x1p-23f;
  };
  const CheckResult result = CheckAgain();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_EQ(result.culprits.front().tensor.role, Role::kGradNorm);
  EXPECT_THAT(result.culprits.front().where, HasSubstr("are equal"));
}

TEST_F(BitsTest, TheNormOfOtherGradientsFollowsThem) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->extra = {
        {"", Role::kGradNorm, "", Pass::kOptimizer, {1, 1}, {}, -1, {}}};
  }
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kGradReduced || t.role == Role::kGradNorm) {
      *value *= 1 + 0x1p-23f;
    }
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  for (const Culprit& culprit : result.culprits) {
    EXPECT_EQ(culprit.tensor.role, Role::kGradReduced) << culprit.where;
  }
}

// Reruns of either run do not count: they are not the runs.
TEST_F(BitsTest, LegsOtherThanTheRunsAreNotCompared) {
  candidate_.fault = [](const SyntheticTensor&, int, const Leg& leg, int64_t,
                        float* value) {
    if (leg != kReal) *value += 1;
  };
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kBitwiseEqual) << result.reason;
}

TEST_F(BitsTest, WhatOneRunLacksLeavesItOpen) {
  candidate_.omitted_fqn = "fc";
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
  EXPECT_THAT(result.reason, HasSubstr("without a partner"));
}

// Each rank's piece is compared where both runs cut alike.
TEST_F(BitsTest, NoTermHidesInASum) {
  reference_.mesh = candidate_.mesh = {{"dp", 2}};
  const auto terms = [](float of_rank_0) {
    return [of_rank_0](const SyntheticTensor& t, int rank, const Leg&, int64_t,
                       float* value) {
      if (t.role == Role::kGradLocal)
        *value = rank == 0 ? of_rank_0 : 3 - of_rank_0;
    };
  };
  reference_.fault = terms(1);
  candidate_.fault = terms(2);
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  const TensorJudgement& t = Find(result, "fc.weight", Role::kGradLocal);
  EXPECT_THAT(ReasonWords(t.reason), HasSubstr("the same numbers together"));
  EXPECT_EQ(t.ranks, (std::vector<int>{0, 1}));
  candidate_.fault = terms(1);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kBitwiseEqual);
}

// Of two runs that are cut otherwise neither may hide a copy.
TEST_F(BitsTest, NoCopyHidesInTheReference) {
  reference_.mesh = {{"dp", 1}, {"tp", 2}};
  candidate_.mesh = {{"dp", 1}, {"tp", 1}};
  EXPECT_EQ(Check().verdict, Verdict::kBitwiseEqual);
  reference_.fault = [](const SyntheticTensor& t, int rank, const Leg&,
                        int64_t index, float* value) {
    if (t.fqn == "fc" && t.role == Role::kInput && rank == 1 && index == 3) {
      *value += 1;
    }
  };
  const CheckResult result = CheckAgain();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  const TensorJudgement& t = Find(result, "fc", Role::kInput);
  EXPECT_THAT(ReasonWords(t.reason), HasSubstr("differ in the reference"));
}

TEST_F(BitsTest, APayloadOfNaNIsABit) {
  const auto nan = [](uint32_t bits) {
    return [bits](const SyntheticTensor& t, int, const Leg&, int64_t index,
                  float* value) {
      if (t.role == Role::kParam && index == 3) {
        *value = std::bit_cast<float>(bits);
      }
    };
  };
  reference_.fault = nan(0x7fc00000);
  candidate_.fault = nan(0x7fc00000);
  reference_.mesh = candidate_.mesh;
  EXPECT_EQ(Check().verdict, Verdict::kBitwiseEqual);
  candidate_.fault = nan(0x7fc00001);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
}

TEST_F(BitsTest, EqualNumbersOfAnotherDTypeAreOther) {
  reference_.fault = candidate_.fault = [](const SyntheticTensor& t, int,
                                           const Leg&, int64_t, float* value) {
    if (t.role == Role::kParam) *value = 1;
  };
  for (const bool alike : {true, false}) {
    if (alike) reference_.mesh = candidate_.mesh;
    if (!alike) reference_.mesh = {};
    candidate_.dtypes = {};
    EXPECT_EQ(CheckAgain().verdict, Verdict::kBitwiseEqual);
    candidate_.dtypes = {{"fc.weight", DType::kBF16}};
    const CheckResult result = CheckAgain();
    ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    const TensorJudgement& t = Find(result, "fc.weight", Role::kParam);
    EXPECT_THAT(ReasonWords(t.reason),
                HasSubstr("its dtype is bfloat16, the reference's is float32"));
  }
}

TEST_F(BitsTest, TheRoundOffOfAnotherTopologyIsADifference) {
  EXPECT_EQ(Check().verdict, Verdict::kBitwiseEqual);
  candidate_.noise = 0x1p-24f;
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
  bitwise_ = false;
  EXPECT_EQ(CheckAgain().verdict, Verdict::kWithin);
}

}  // namespace
}  // namespace ttrace::bits_test
