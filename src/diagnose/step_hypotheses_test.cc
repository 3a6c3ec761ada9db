#include "src/diagnose/step_hypotheses.h"

#include <gtest/gtest.h>

#include "src/step/testing/float_step.h"

namespace ttrace::step_hypotheses_test {
namespace {

StepRule Rule() {
  StepRule rule;
  rule.lr = 1e-2;
  rule.beta1 = 0.9;
  rule.beta2 = 0.99;
  rule.eps = 1e-8;
  rule.weight_decay = 0.1;
  rule.decoupled = true;
  return rule;
}

// `wrong` elements after a step by another rule, `right` ones after the own.
StepSample SampleOf(const StepRule& other, int wrong, int right) {
  StepSample sample;
  sample.rule = Rule();
  sample.quantities = {StepQuantity::kFirst, StepQuantity::kSecond,
                       StepQuantity::kParameter};
  sample.known.fill(true);
  for (int i = 0; i < wrong + right; ++i) {
    const FloatStep step(StepOrder::kTensors, i < wrong ? other : Rule(), 1,
                         DType::kF32);
    StepState before;
    before.parameter = 0.1f + 0.01f * static_cast<float>(i);
    const float gradient = 1e-3f * static_cast<float>(1 + i % 7);
    const StepState after = step.After(before, gradient);
    StepElement element = {};
    const auto put = [&](StepField field, float value) {
      element[static_cast<size_t>(field)] = static_cast<double>(value);
    };
    put(StepField::kParameter, before.parameter);
    put(StepField::kGradient, gradient);
    put(StepField::kParameterAfter, after.parameter);
    put(StepField::kFirstAfter, after.first);
    put(StepField::kSecondAfter, after.second);
    sample.elements.push_back(element);
  }
  return sample;
}

StepRule WithoutDecay() {
  StepRule rule = Rule();
  rule.weight_decay = 0;
  return rule;
}

TEST(ExplainStep, NamesWhatExplainsAll) {
  const auto found = ExplainStep(SampleOf(WithoutDecay(), 4, 0), {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bug_class, BugClass::kOtherHyperparameters);
  EXPECT_EQ(found->wrong, 4);
}

// Half of the elements are what they should be: no weight decay for all is not
// what happened.
TEST(ExplainStep, MustExplainWhatIsRightAsWell) {
  EXPECT_FALSE(ExplainStep(SampleOf(WithoutDecay(), 40, 40), {}));
}

TEST(ExplainStep, IsSilentAboutFewElements) {
  EXPECT_FALSE(ExplainStep(SampleOf(WithoutDecay(), 3, 0), {}));
  StepRule faster = Rule();
  faster.lr = 0.013;
  EXPECT_FALSE(ExplainStep(SampleOf(faster, 15, 0), {}));
  EXPECT_TRUE(ExplainStep(SampleOf(faster, 16, 0), {}));
}

}  // namespace
}  // namespace ttrace::step_hypotheses_test
