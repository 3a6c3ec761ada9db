#include "src/judge/judge_step.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace ttrace::judge_step_test {
namespace {

const TensorId kUpdated = {"w", Role::kParamUpdated, 2, 0,
                           "",  Pass::kOptimizer};

ReplayedStep StepOf(int64_t out, bool whole = true) {
  ReplayedStep step;
  step.step = {2, "w"};
  step.whole = whole;
  step.ranks = {0, 1};
  const auto q = static_cast<size_t>(StepQuantity::kParameter);
  step.results[q] = kUpdated;
  step.errors[q] = {100, out, out > 0 ? 5.0 : 0.9, 0.5, 0.1, {}};
  if (out > 0) step.errors[q].ranks = {1};
  return step;
}

TensorJudgement Open() {
  TensorJudgement t;
  t.id = kUpdated;
  t.verdict = TensorVerdict::kNotCheckable;
  t.excused = true;
  t.reason = Because(ReasonKind::kAfterStep);
  return t;
}

TensorJudgement Judged(TensorJudgement t, const ReplayedStep& step,
                       const ReplayedStep* reference = nullptr) {
  std::vector<TensorJudgement> tensors = {std::move(t)};
  ReplayedSteps theirs;
  if (reference != nullptr) theirs.emplace(reference->step, *reference);
  JudgeSteps({{step.step, step}}, theirs, &tensors);
  return tensors.front();
}

TEST(JudgeSteps, ARightStepIsWithinAndNoSuspect) {
  const TensorJudgement t = Judged(Open(), StepOf(0));
  EXPECT_EQ(t.verdict, TensorVerdict::kWithin);
  EXPECT_FALSE(t.excused);
  EXPECT_TRUE(t.reason.none());
  EXPECT_EQ(t.headroom, 0.9);
  ASSERT_NE(t.deciding(), nullptr);
  EXPECT_EQ(t.deciding()->deciding()->statistic, Statistic::kStep);
  EXPECT_EQ(t.deciding()->deciding()->expected.origin, Origin::kStepRounding);
}

TEST(JudgeSteps, AWrongStepIsDiverged) {
  const TensorJudgement t = Judged(Open(), StepOf(3));
  EXPECT_EQ(t.verdict, TensorVerdict::kDiverged);
  EXPECT_TRUE(t.step_differs());
  EXPECT_FALSE(t.excused);
  EXPECT_EQ(t.ranks, std::vector<int>{1});
  EXPECT_EQ(t.reason.counts, (std::vector<int64_t>{3, 100}));
  EXPECT_EQ(t.reason.numbers, (std::vector<double>{0.5, 0.1}));
  EXPECT_EQ(t.headroom, 5);
}

TEST(JudgeSteps, ATensorThatIsNotWhollyJudgedIsNotWithin) {
  ReplayedStep step = StepOf(0, false);
  step.gaps[{StepGap::Kind::kNotHeld, "exp_avg"}] = {3};
  TensorJudgement state = Open();
  state.id.role = Role::kOptimState;
  state.id.arg = "master";
  const TensorJudgement t = Judged(Open(), step);
  EXPECT_EQ(t.verdict, TensorVerdict::kNotCheckable);
  EXPECT_TRUE(t.excused);
  EXPECT_EQ(t.reason.kind, ReasonKind::kStepNotHeld);
  EXPECT_EQ(t.reason.ranks, std::vector<int>{3});
  EXPECT_NE(t.legs.front().Find(Statistic::kStep), nullptr);
}

TEST(JudgeSteps, WithoutAnyStateNothingNewIsSaid) {
  ReplayedStep step = StepOf(0, false);
  step.errors = {};
  step.gaps[{StepGap::Kind::kNotRecorded, "exp_avg"}] = {0};
  EXPECT_EQ(Judged(Open(), step).reason.kind, ReasonKind::kAfterStep);
  step.gaps = {{{StepGap::Kind::kAlgorithm, "Lion"}, {0}}};
  EXPECT_EQ(Judged(Open(), step).reason.kind, ReasonKind::kStepUnknown);
}

TEST(JudgeSteps, WhatTheNextIterationFindsAfterAGoodStepIsSaidToBeThat) {
  TensorJudgement found = Open();
  found.id.arg = "found";  // not what the step was judged on
  EXPECT_EQ(Judged(found, StepOf(0)).reason.kind, ReasonKind::kAfterGoodStep);
  EXPECT_EQ(Judged(found, StepOf(0, false)).reason.kind,
            ReasonKind::kAfterStep);
  found.verdict = TensorVerdict::kBitwiseEqual;
  found.reason = {};
  EXPECT_TRUE(Judged(found, StepOf(0)).reason.none());
}

TEST(JudgeSteps, WhatTheReferenceDoesTooIsNotJudged) {
  const ReplayedStep wrong = StepOf(3);
  const TensorJudgement t = Judged(Open(), wrong, &wrong);
  EXPECT_EQ(t.verdict, TensorVerdict::kNotCheckable);
  EXPECT_TRUE(t.excused);
  EXPECT_EQ(t.reason.kind, ReasonKind::kReferenceStep);
  const ReplayedStep right = StepOf(0);
  EXPECT_TRUE(Judged(Open(), wrong, &right).diverged());
}

TEST(JudgeSteps, OtherFindingsStand) {
  TensorJudgement damaged = Open();
  damaged.reason = Because(ReasonKind::kDamaged);
  EXPECT_EQ(Judged(damaged, StepOf(3)).verdict, TensorVerdict::kNotCheckable);
  TensorJudgement copies = Open();
  copies.verdict = TensorVerdict::kDiverged;
  copies.replicas_differ = true;
  copies.headroom = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Judged(copies, StepOf(0)).verdict, TensorVerdict::kDiverged);
  EXPECT_EQ(Judged(copies, StepOf(3)).headroom, copies.headroom);
  TensorJudgement equal = Open();
  equal.verdict = TensorVerdict::kBitwiseEqual;
  equal.excused = false;
  equal.reason = {};
  EXPECT_EQ(Judged(equal, StepOf(0)).verdict, TensorVerdict::kBitwiseEqual);
}

TEST(JudgeSteps, WhatAStepStartsFromIsSaidToBeThat) {
  TensorJudgement before = Open();
  before.id = {"w", Role::kOptimState, 2, 0, "exp_avg", Pass::kForward};
  const TensorJudgement t = Judged(before, StepOf(0));
  EXPECT_EQ(t.reason.kind, ReasonKind::kBeforeStep);
  EXPECT_TRUE(t.excused);
}

}  // namespace
}  // namespace ttrace::judge_step_test
