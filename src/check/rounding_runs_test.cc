// What a check reads of two traces about how their values were rounded.

#include <gtest/gtest.h>

#include <cmath>

#include "src/check/testing/check_fixture.h"

namespace ttrace::rounding_runs_test {
namespace {

class SmallNumbersTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      run->dtype = DType::kBF16;
    }
  }

  // Gradients of some tens of units of bf16's smallest number, which the
  // reference rounds down and the candidate, who holds them divided by `scale`,
  // to the nearest; `units` are added to every other one.
  void Describe(float scale, float units) {
    const auto is_gradient = [](const SyntheticTensor& t) {
      return t.role == Role::kGradReduced || t.role == Role::kGradLocal;
    };
    reference_.fault = [=](const SyntheticTensor& t, int, const Leg&, int64_t,
                           float* value) {
      if (is_gradient(t)) *value *= 0x1p-127f;
    };
    candidate_.fault = [=](const SyntheticTensor& t, int, const Leg&,
                           int64_t index, float* value) {
      if (!is_gradient(t)) return;
      const float half = std::copysign(0x1p-134f, *value);
      *value = *value * 0x1p-127f / scale + half;
      if (index % 2 == 0) *value += units * 0x1p-133f;
    };
    candidate_.scale_of_gradients = {static_cast<int64_t>(scale), 1};
  }
};

TEST_F(SmallNumbersTest, AreRoundedToASpacing) {
  Describe(1, 0);
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_GT(Find(result, "fc.weight", Role::kGradReduced).headroom, 0.5);
  Describe(1, 3);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
}

TEST_F(SmallNumbersTest, ADeclaredScaleWidensTheSpacing) {
  Describe(4, 0);
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  Describe(4, 3);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
}

// The gradient of a bias in bf16, and what the reference's own is off.
class TokenSumTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    reference_.legs = {"real", "noise.1", "noise.2", "noise.3", "fp32"};
    candidate_.legs = {"real", "fp32"};
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      run->noise_of_legs = 0x1p-8f;
      run->dtypes = {{"fc", DType::kBF16}};
      run->extra = {{"fc.bias",
                     Role::kGradReduced,
                     "",
                     Pass::kBackward,
                     {256},
                     {},
                     -1,
                     {}}};
    }
    reference_.fault = Off(0.02f);
    candidate_.fault = Off(0.1f);
  }

  static SyntheticRun::Fault Off(float error) {
    return [=](const SyntheticTensor& t, int, const Leg& leg, int64_t index,
               float* value) {
      if (t.fqn != "fc.bias" || leg == "fp32") return;
      *value *= 1 + (index % 2 == 0 ? error : -error);
    };
  }
};

TEST_F(TokenSumTest, MayBeOffMoreWhereMoreTokensAreSummedAtOnce) {
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
  // Its module's output has as many tokens in a piece as the run has rows in a
  // micro-batch. The candidate's has eight instead of two.
  candidate_.rows_of_a_micro_batch = 8;
  const CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
}

}  // namespace
}  // namespace ttrace::rounding_runs_test
