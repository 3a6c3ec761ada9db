// What a check says of iterations that end without a step: gradients that are
// not finite in one run alone, and those that a loop throws away.

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "src/check/testing/check_fixture.h"

namespace ttrace::skipped_steps_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class OverflowTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    reference_.legs.push_back("fp32");
    candidate_.legs.push_back("fp32");
    Describe("F16", {&candidate_});
  }

  // Both compute in `dtype`; of `skipped` the optimizer made no step.
  void Describe(const std::string& dtype,
                const std::vector<SyntheticRun*>& skipped) {
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      run->notes = {{"precision_inside",
                     R"({"fqn": "fc", "dtype": ")" + dtype + R"("})"}};
    }
    for (SyntheticRun* run : skipped) {
      run->notes.emplace_back("skipped_step",
                              R"({"iteration": 0, "reason": "overflow"})");
    }
  }

  static SyntheticRun::Fault Put(float number, Role role,
                                 const Leg& leg = "real", int64_t index = 5) {
    return [=](const SyntheticTensor& t, int, const Leg& in, int64_t i,
               float* value) {
      if (t.fqn.starts_with("fc") && t.role == role && in == leg &&
          i == index) {
        *value = number;
      }
    };
  }

  // A parameter that the reference's step moves and the candidate's does not.
  void LeaveOutStep() {
    const SyntheticTensor before = {
        "fc.weight", Role::kParam,       "", Pass::kForward,
        {16, 32},    {{"tp", Shard{0}}}, -1, {}};
    SyntheticTensor after = before;
    after.role = Role::kParamUpdated;
    after.pass = Pass::kOptimizer;
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      run->extra = {after};
    }
    const auto own = candidate_.fault;
    candidate_.fault = [=](const SyntheticTensor& t, int rank, const Leg& leg,
                           int64_t i, float* value) {
      if (t.role == Role::kParamUpdated) {
        *value = SyntheticRun::Value(before, i);
      } else if (own) {
        own(t, rank, leg, i, value);
      }
    };
  }
};

TEST_F(OverflowTest, OfASkippedStepIsNoFault) {
  candidate_.fault = Put(kInfinity, Role::kGradLocal);
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_NE(result.reason.find("loss scale"), std::string::npos)
      << result.reason;
  EXPECT_NE(result.reason.find("fc.weight grad_local"), std::string::npos)
      << result.reason;
}

TEST_F(OverflowTest, OfTheReferenceAlone) {
  Describe("F16", {&reference_});
  reference_.fault = Put(-kInfinity, Role::kGradOutput);
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
  EXPECT_NE(result.reason.find("1 in the reference"), std::string::npos)
      << result.reason;
}

TEST_F(OverflowTest, OfAStepThatWasMadeIsAFault) {
  Describe("F16", {});
  candidate_.fault = Put(kInfinity, Role::kGradLocal);
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(Letters(result.culprits.front()).front(), "N");
}

TEST_F(OverflowTest, OnlyFp16Overflows) {
  Describe("BF16", {&reference_, &candidate_});
  candidate_.fault = Put(kInfinity, Role::kGradLocal);
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
}

TEST_F(OverflowTest, OnlyGradientsHaveALossScale) {
  candidate_.fault = Put(kInfinity, Role::kOutput);
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().fqn, "fc");
}

TEST_F(OverflowTest, Fp32LegsDoNotOverflow) {
  candidate_.fault = Put(kInfinity, Role::kGradLocal, "fp32");
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
}

TEST_F(OverflowTest, TheOtherElementsAreJudged) {
  const auto infinite = Put(kInfinity, Role::kGradLocal);
  const auto wrong = Put(7, Role::kGradLocal, "real", 6);
  candidate_.fault = [=](const SyntheticTensor& t, int rank, const Leg& leg,
                         int64_t i, float* value) {
    infinite(t, rank, leg, i, value);
    wrong(t, rank, leg, i, value);
  };
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
}

TEST_F(OverflowTest, MayLeaveOutTheStepOfOneRun) {
  candidate_.fault = Put(kInfinity, Role::kGradReduced);
  LeaveOutStep();
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
  EXPECT_TRUE(result.culprits.empty());
}

TEST_F(OverflowTest, AStepThatIsLeftOutWithoutOneIsAFault) {
  LeaveOutStep();
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().tensor.role, Role::kParamUpdated);
}

TEST_F(OverflowTest, WithoutAReference) {
  candidate_.mesh = {{"dp", 2}};
  candidate_.fault = Put(kInfinity, Role::kGradReduced);
  const CheckResult result = CheckWithoutReference();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
  Describe("F16", {});
  std::filesystem::remove_all(Path("cand"));
  EXPECT_EQ(CheckWithoutReference().verdict, Verdict::kDiverged);
}

// The pass that trains a generator leaves gradients in the discriminator, which
// are not reduced: copies differ, and no weight sees it.
class ClearedTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&,
                          int64_t, float* value) {
      if (t.role == Role::kGradReduced) *value += static_cast<float>(rank);
    };
  }

  static void Clear(SyntheticRun* run) {
    run->notes = {
        {"skipped_step", R"({"iteration": 0, "reason": "", "cleared": true})"}};
  }
};

TEST_F(ClearedTest, NobodyUsesGradientsThatAreThrownAway) {
  Clear(&reference_);
  Clear(&candidate_);
  const CheckResult result = Check();
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_NE(result.verdict, Verdict::kDiverged) << result.reason;
}

TEST_F(ClearedTest, TheReferenceUsesThem) {
  Clear(&candidate_);
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
}

// A sum that ranks average, say: no step shows the scale of what is cleared.
TEST_F(ClearedTest, WhatABackwardMakesOfThemHasNoKnownScale) {
  const auto twice = [](Role role) {
    return [role](const SyntheticTensor& t, int, const Leg&, int64_t,
                  float* value) {
      if (t.role == role) *value *= 2;
    };
  };
  const auto verdict = [&] { return CheckAgain().verdict; };
  const std::pair<std::string, std::string> within = {
      "gradients_cleared",
      R"({"iteration": 0, "micro_batches": 1, "parameters": ["fc.weight"]})"};
  for (const bool instead_of_step : {true, false}) {
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      if (instead_of_step) {
        Clear(run);
      } else {
        run->notes = {within};
      }
    }
    candidate_.fault = twice(Role::kGradOutput);
    EXPECT_NE(verdict(), Verdict::kDiverged);
    candidate_.fault = twice(Role::kOutput);
    EXPECT_EQ(verdict(), Verdict::kDiverged) << "a forward has no scale";
    candidate_.fault = twice(Role::kGradOutput);
    reference_.notes = {};
    EXPECT_EQ(verdict(), Verdict::kDiverged) << "the reference uses them";
  }
}

}  // namespace
}  // namespace ttrace::skipped_steps_test
