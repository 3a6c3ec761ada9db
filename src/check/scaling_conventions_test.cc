// Loops divide where they like: in the loss, in the reduction or behind it.
// Which of these a run does is no fault; what is stepped is judged.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "src/check/testing/check_fixture.h"
#include "src/in_place/condense_trace.h"

namespace ttrace::scaling_conventions_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class ScalingTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    candidate_.mesh = {{"dp", 2}};
    const SyntheticTensor loss = {"loss", Role::kLoss, "value", Pass::kForward,
                                  {1, 1}, {},          -1,      {}};
    reference_.legs.insert(reference_.legs.end(),
                           {"isolated.noise.1", "isolated.noise.2"});
    candidate_.legs.emplace_back("isolated");
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      run->extra = {loss};
      run->notes = {{"loss_unit", R"({"known":false})"}};
    }
    reference_.fault = [](const SyntheticTensor& t, int, const Leg&,
                          int64_t index,
                          float* value) { Reduce(t, index, value); };
    candidate_.fault = [this](const SyntheticTensor& t, int rank,
                              const Leg& leg, int64_t index, float* value) {
      Reduce(t, index, value);
      Scale(t, leg, value);
      if (wrong_) wrong_(t, rank, leg, index, value);
    };
  }

  // What is reduced is the sum of what there is before.
  static void Reduce(const SyntheticTensor& t, int64_t index, float* value) {
    if (t.role != Role::kGradReduced) return;
    SyntheticTensor local = t;
    local.role = Role::kGradLocal;
    *value *= SyntheticRun::Value(local, index) / SyntheticRun::Value(t, index);
  }

  void Scale(const SyntheticTensor& t, const Leg& leg, float* value) {
    const bool reduced = t.role == Role::kGradReduced;
    const bool of_loss = t.role == Role::kLoss || t.role == Role::kGradOutput ||
                         t.role == Role::kGradInput ||
                         t.role == Role::kGradLocal;
    if (leg == "isolated") {
      // The loss and the gradient that it sends back are the candidate's; what
      // is made of gradients of the reference is not, and is reduced all the
      // same.
      if (t.role == Role::kLoss ||
          (t.role == Role::kGradOutput && t.fqn.empty())) {
        *value *= before_;
      }
      if (reduced) *value *= stepped_ / before_;
      return;
    }
    if (of_loss) *value *= before_;
    if (reduced) *value *= stepped_;
  }

  void ExpectConvention(const CheckResult& result, const std::string& factor) {
    EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
    EXPECT_TRUE(result.culprits.empty());
    EXPECT_THAT(Notes(result),
                Contains(HasSubstr("before the reduction are " + factor +
                                   " x the reference's")));
  }

  float before_ = 1;   // of losses and gradients before the reduction
  float stepped_ = 1;  // of gradients as they are stepped
  SyntheticRun::Fault wrong_;
};

TEST_F(ScalingTest, AFactorThatTheReductionMakesUpForIsAConvention) {
  before_ = 0.5;
  ExpectConvention(Check(), "0.5");
}

TEST_F(ScalingTest, ACountOfTokensIsOneToo) {
  before_ = 371.0F / 2;
  ExpectConvention(Check(), "185.5");
}

// Where no gradient has its values a sample of each tells the factor.
TEST_F(ScalingTest, ItIsReadOffSamplesToo) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->legs = {"real", "replay", "noise.1"};
    // The only parameter is one of which no values are kept.
    run->omit = [](const SyntheticTensor& t, int, const Leg&, int) {
      return t.fqn == "fc.weight";
    };
    SyntheticTensor gradient = {
        "large.weight", Role::kGradLocal,    "", Pass::kBackward,
        {64, 64},       {{"dp", Partial{}}}, -1, {}};
    run->extra.push_back(gradient);
    gradient.role = Role::kGradReduced;
    gradient.placements.clear();
    gradient.reduced_over = {"dp"};
    run->extra.push_back(gradient);
  }
  before_ = 0.5;
  Check();
  CheckOptions options;
  for (const char* which : {"ref", "cand"}) {
    CondenseOptions condense;
    condense.from = Path(which);
    condense.to = Path((std::string(which) + "-small").c_str());
    const auto condensed = CondenseTrace(condense);
    ASSERT_TRUE(condensed.ok()) << condensed.error().message();
    ASSERT_GT(condensed->summaries, 0);
  }
  options.reference = Path("ref-small");
  options.candidate = Path("cand-small");
  const auto result = RunCheck(options);
  ASSERT_TRUE(result.ok()) << result.error().message();
  ExpectConvention(*result, "0.5");
}

TEST_F(ScalingTest, ItIsReadForEachIteration) {
  for (SyntheticRun* run : {&reference_, &candidate_}) run->iterations = 2;
  candidate_.faulty_iteration = -1;
  before_ = 0.5;
  const CheckResult result = Check();
  ExpectConvention(result, "0.5");
  EXPECT_THAT(Notes(result), Contains(HasSubstr("iterations 0, 1")));
}

// The order of the noise of both runs is that of their values: nothing is
// allowed that is not allowed without the factor.
TEST_F(ScalingTest, WhatIsWrongBesideTheFactorIsFound) {
  before_ = 0.5;
  wrong_ = [](const SyntheticTensor& t, int, const Leg&, int64_t index,
              float* value) {
    if (t.role == Role::kGradInput && index == 3) *value *= 1.01F;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().tensor.role, Role::kGradInput);
  EXPECT_EQ(result.culprits.size(), 1U);
}

TEST_F(ScalingTest, AFactorOfWhatIsSteppedIsAFault) {
  stepped_ = 2;
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().tensor.role, Role::kGradReduced);
  EXPECT_EQ(Letters(result.culprits.front()).front(), "K");
  EXPECT_THAT(Notes(result), Not(Contains(HasSubstr("a convention"))));
}

TEST_F(ScalingTest, AFactorOfTheLossAndOfWhatIsSteppedIsAFault) {
  before_ = stepped_ = 0.5;
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().tensor.role, Role::kLoss);
}

TEST_F(ScalingTest, AFactorOfTheLossAloneIsAFault) {
  wrong_ = [](const SyntheticTensor& t, int, const Leg&, int64_t,
              float* value) {
    if (t.role == Role::kLoss) *value *= 0.5F;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().tensor.role, Role::kLoss);
}

// Frameworks whose adapters know all scales state them.
TEST_F(ScalingTest, ARunThatKnowsItsUnitIsHeldToIt) {
  before_ = 0.5;
  for (SyntheticRun* run : {&reference_, &candidate_}) run->notes.clear();
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
}

class LoopScalingTest : public ScalingTest {
 protected:
  void SetUp() override {
    ScalingTest::SetUp();
    const SyntheticTensor local = {
        "fc.bias", Role::kGradLocal,    "", Pass::kBackward,
        {16},      {{"dp", Partial{}}}, -1, {}};
    SyntheticTensor reduced = local;
    reduced.role = Role::kGradReduced;
    reduced.placements.clear();
    reduced.reduced_over = {"dp"};
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      run->extra.push_back(local);
      run->extra.push_back(reduced);
    }
  }

  void SayTheLoopChangesGradients() {
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      run->notes.emplace_back(
          "optimizer_group",
          R"({"iteration":0,"optimizer":0,"group":0,"kind":"sgd",)"
          R"("parameters":["fc.weight","fc.bias"],"values":{"lr":0.1,)"
          R"("gradients changed before they were recorded":true}})");
    }
  }
};

TEST_F(LoopScalingTest, AFactorThatTheLoopPutsOnAllGradientsIsTheLoops) {
  stepped_ = 0.76F;
  SayTheLoopChangesGradients();
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  const Culprit& first = result.culprits.front();
  EXPECT_EQ(Letters(first).front(), "K");
  EXPECT_EQ(first.stage, Stage::kOptimizer);
  EXPECT_THAT(first.hints, Contains(HasSubstr("scales or clips")));
}

TEST_F(LoopScalingTest, WhatOneParameterHasIsNot) {
  wrong_ = [](const SyntheticTensor& t, int, const Leg&, int64_t,
              float* value) {
    if (t.role == Role::kGradReduced && t.fqn == "fc.bias") *value *= 2;
  };
  SayTheLoopChangesGradients();
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().stage, Stage::kCommunication);
}

TEST_F(LoopScalingTest, NorIsWhatNoLoopWasSeenToChange) {
  stepped_ = 2;
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().stage, Stage::kCommunication);
}

// A hook that sends bfloat16, and one of which nobody knows what it sends.
class ReductionHookTest : public ScalingTest {
 protected:
  void SetUp() override {
    ScalingTest::SetUp();
    wrong_ = [this](const SyntheticTensor& t, int, const Leg&, int64_t index,
                    float* value) {
      if (t.role != Role::kGradReduced) return;
      *value *= factor_ * (1 + 0x1p-9F * static_cast<float>(index % 7 - 3) / 3);
    };
  }
  void Register(const std::string& sends) {
    candidate_.notes.emplace_back(
        "comm_hook", R"({"name":"mine","iteration":0,"elements":512,)"
                     R"("ranks":[0,1],"sends":")" +
                         sends + "\"}");
  }
  float factor_ = 1;
};

TEST_F(ReductionHookTest, WhatIsSentInBf16IsRoundedToIt) {
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
  Register("bfloat16");
  const CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_THAT(Notes(result), Contains(HasSubstr("mine, which sends bfloat16")));
}

TEST_F(ReductionHookTest, WhatItForgetsToDivideIsFound) {
  Register("bfloat16");
  factor_ = 2;
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().tensor.role, Role::kGradReduced);
}

TEST_F(ReductionHookTest, OfWhatIsSentNobodyKnowsHowNothingIsSaid) {
  Register("");
  factor_ = 1.5;
  CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_EQ(Find(result, "fc.weight", Role::kGradReduced).reason.kind,
            ReasonKind::kReducedUnknown);
  EXPECT_EQ(Find(result, "fc.weight", Role::kGradLocal).verdict,
            TensorVerdict::kWithin);
  EXPECT_THAT(Notes(result), Contains(HasSubstr("a precision that is not")));
}

TEST_F(ReductionHookTest, CopiesThatDifferAreFoundWhateverTheHook) {
  Register("");
  wrong_ = [](const SyntheticTensor& t, int rank, const Leg&, int64_t,
              float* value) {
    if (t.role == Role::kGradReduced && rank == 1) *value *= 1.5F;
  };
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
}

}  // namespace
}  // namespace ttrace::scaling_conventions_test
