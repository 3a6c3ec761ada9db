#include "src/judge/isolated_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::isolated_verdict_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Isolated = TensorJudgement::Isolated;

constexpr char kLow[] = "isolated";
constexpr char kHigh[] = "fp32.isolated";

TensorId Output(const std::string& fqn = "fc") {
  return {fqn, Role::kOutput, 0, 0, "0", Pass::kForward};
}

LegJudgement JudgedLeg(const Leg& name, double headroom) {
  LegJudgement leg;
  leg.leg = name;
  leg.stats.mismatched = headroom > 0 ? 1 : 0;
  leg.headroom = headroom;
  leg.ranks = {1};
  return leg;
}

LegJudgement Wide(LegJudgement leg) {
  leg.checkable = false;
  leg.tests.resize(1);
  leg.bound = 0.5;
  return leg;
}

// The module's input x was not replaced in `leg`.
NotIsolated NotReplaced(const Leg& leg, const std::string& fqn = "fc",
                        Role role = Role::kInput,
                        const std::string& arg = "x") {
  return {leg, 0, fqn, role, arg, "the reference has no such tensor"};
}

Isolated Conclude(const std::vector<LegJudgement>& legs,
                  const std::vector<NotIsolated>& notes = {},
                  const TensorId& id = Output(), bool is_exact = false) {
  const auto out =
      ConcludeIsolated(id, legs, std::vector(legs.size(), true),
                       NotIsolatedIndex(notes), is_exact, false, {});
  EXPECT_TRUE(out);
  return out.value_or(Isolated{});
}

TEST(ConcludeIsolated, LooksAtIsolatedLegsOnly) {
  const NotIsolatedIndex all_replaced({});
  const std::vector<LegJudgement> legs = {JudgedLeg("real", 9),
                                          JudgedLeg(kLow, 0.1)};
  EXPECT_FALSE(ConcludeIsolated(Output(), {legs[0]}, {false}, all_replaced,
                                false, false, {}));
  const auto alone = ConcludeIsolated(Output(), legs, {false, true},
                                      all_replaced, false, false, {});
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->verdict, TensorVerdict::kWithin);
  EXPECT_EQ(alone->deciding_leg, 1);
  EXPECT_EQ(alone->headroom, 0.1);
  EXPECT_THAT(alone->ranks, IsEmpty());
}

TEST(ConcludeIsolated, ALegThatIsTooWideLeavesNoReasonOnTheOthersVerdict) {
  for (const auto& legs :
       {std::vector{Wide(JudgedLeg(kLow, 9)), JudgedLeg(kHigh, 0.1)},
        {JudgedLeg(kLow, 0.1), Wide(JudgedLeg(kHigh, 9))}}) {
    const Isolated alone = Conclude(legs);
    EXPECT_EQ(alone.verdict, TensorVerdict::kWithin);
    EXPECT_TRUE(alone.reason.none());
  }
  EXPECT_EQ(Conclude({Wide(JudgedLeg(kLow, 9))}).reason.kind,
            ReasonKind::kBoundTooWide);
}

TEST(ConcludeIsolated, TheWorstLegDecides) {
  EXPECT_EQ(Conclude({JudgedLeg(kLow, 0)}).verdict,
            TensorVerdict::kBitwiseEqual);
  EXPECT_EQ(Conclude({JudgedLeg(kLow, 0.1), JudgedLeg(kHigh, 0.6)}).verdict,
            TensorVerdict::kSuspect);
  for (const auto& legs :
       {std::vector{JudgedLeg(kLow, 0.1), JudgedLeg(kHigh, 3)},
        {JudgedLeg(kLow, 3), JudgedLeg(kHigh, 0)},
        {Wide(JudgedLeg(kLow, 9)), JudgedLeg(kHigh, 3)}}) {
    const Isolated alone = Conclude(legs);
    EXPECT_EQ(alone.verdict, TensorVerdict::kDiverged);
    EXPECT_EQ(alone.headroom, 3);
    EXPECT_THAT(alone.ranks, ElementsAre(1));
  }
}

TEST(ConcludeIsolated, AWideBoundLeavesItOpenAndANanDoesNot) {
  LegJudgement leg = Wide(JudgedLeg(kLow, 9));
  EXPECT_EQ(Conclude({leg}).verdict, TensorVerdict::kNotCheckable);
  EXPECT_EQ(Conclude({leg}).reason.kind, ReasonKind::kBoundTooWide);
  leg.stats.nonfinite_differ = 1;
  const Isolated alone = Conclude({leg});
  EXPECT_EQ(alone.verdict, TensorVerdict::kDiverged);
  EXPECT_TRUE(std::isinf(alone.headroom));
}

TEST(ConcludeIsolated, WhatIsDecidedIsNotOpen) {
  for (const auto& legs :
       {std::vector{JudgedLeg(kLow, 0.1), Wide(JudgedLeg(kHigh, 9))},
        {Wide(JudgedLeg(kLow, 9)), JudgedLeg(kHigh, 0.1)}}) {
    EXPECT_EQ(Conclude(legs).verdict, TensorVerdict::kWithin);
  }
  EXPECT_TRUE(Conclude({JudgedLeg(kLow, 0.1), Wide(JudgedLeg(kHigh, 9))})
                  .reason.none());
}

// Their errors may have come from outside.
TEST(ConcludeIsolated, LegsThatWereFedTheirOwnValuesYieldToOthers) {
  const std::vector<LegJudgement> legs = {JudgedLeg(kLow, 3),
                                          JudgedLeg(kHigh, 0.1)};
  for (const bool first : {true, false}) {
    const auto fed = first ? legs : std::vector{legs[1], legs[0]};
    const Isolated alone = Conclude(fed, {NotReplaced(kLow)});
    EXPECT_EQ(alone.verdict, TensorVerdict::kWithin);
    EXPECT_TRUE(alone.replaced);
    EXPECT_EQ(alone.deciding_leg, first ? 1 : 0);
    EXPECT_TRUE(alone.reason.none());
  }
  const Isolated none = Conclude(legs, {NotReplaced(kLow), NotReplaced(kHigh)});
  EXPECT_EQ(none.verdict, TensorVerdict::kDiverged);
  EXPECT_FALSE(none.replaced);
  EXPECT_EQ(none.reason.kind, ReasonKind::kNotReplaced);
  EXPECT_EQ(none.reason.tensor.fqn, "fc");
}

TEST(ConcludeIsolated, NoLegReplacesData) {
  const TensorId tokens = {"", Role::kInput, 0, 0, "tokens", Pass::kForward};
  const TensorId ids = {"fc", Role::kInput, 0, 0, "x", Pass::kForward};
  EXPECT_FALSE(Conclude({JudgedLeg(kLow, 0)}, {}, tokens).replaced);
  EXPECT_FALSE(Conclude({JudgedLeg(kLow, 0)}, {}, ids, true).replaced);
  EXPECT_TRUE(Conclude({JudgedLeg(kLow, 0)}, {}, ids).replaced);
  EXPECT_TRUE(Conclude({JudgedLeg(kLow, 0)}, {}, Output(), true).replaced);
}

TEST(ConcludeIsolated, CopiesThatDifferConvictWithoutABound) {
  const auto conclude = [](const LegJudgement& leg) {
    return *ConcludeIsolated(Output(), {leg}, {true}, NotIsolatedIndex({}),
                             false, true, {2, 3});
  };
  const Isolated within = conclude(JudgedLeg(kLow, 0.1));
  EXPECT_EQ(within.verdict, TensorVerdict::kDiverged);
  EXPECT_TRUE(std::isinf(within.headroom));
  EXPECT_THAT(within.ranks, ElementsAre(1));
  const Isolated open = conclude(Wide(JudgedLeg(kLow, 9)));
  EXPECT_EQ(open.verdict, TensorVerdict::kDiverged);
  EXPECT_THAT(open.ranks, ElementsAre(2, 3));
  // Equal copies are all wrong: no rank is named.
  LegJudgement all = JudgedLeg(kLow, 3);
  all.ranks = {};
  EXPECT_THAT(ConcludeIsolated(Output(), {all}, {true}, NotIsolatedIndex({}),
                               false, false, {2, 3})
                  ->ranks,
              IsEmpty());
  // What is out of its bound keeps its number.
  EXPECT_EQ(conclude(JudgedLeg(kLow, 3)).headroom, 3);
}

TEST(NotIsolatedIndex, KnowsWhatATensorIsMadeFrom) {
  const auto why = [](const NotIsolated& note, const TensorId& id) {
    return NotIsolatedIndex({note}).WhyNot(kLow, id).kind ==
           ReasonKind::kNotReplaced;
  };
  const auto id = [](const std::string& fqn, Role role,
                     const std::string& arg) {
    return TensorId{fqn, role, 0, 0, arg, Pass::kForward};
  };
  const NotIsolated input = NotReplaced(kLow);
  const NotIsolated arriving = NotReplaced(kLow, "fc", Role::kGradOutput, "0");
  EXPECT_TRUE(why(input, Output()));
  EXPECT_FALSE(why(arriving, Output()));
  EXPECT_FALSE(why(input, Output("other")));
  EXPECT_FALSE(why(NotReplaced(kHigh), Output()));
  // Edges are replaced one by one.
  EXPECT_TRUE(why(input, id("fc", Role::kInput, "x")));
  EXPECT_FALSE(why(input, id("fc", Role::kInput, "y")));
  EXPECT_TRUE(why(arriving, id("fc", Role::kGradOutput, "0")));
  // Backward, from both.
  for (const NotIsolated& note : {input, arriving}) {
    EXPECT_TRUE(why(note, id("fc", Role::kGradInput, "x")));
    EXPECT_TRUE(why(note, id("fc.weight", Role::kGradReduced, "")));
    EXPECT_FALSE(why(note, id("other.weight", Role::kGradReduced, "")));
  }
  // The loss is made from what the model is given.
  EXPECT_TRUE(why(NotReplaced(kLow, ""), id("loss", Role::kLoss, "value")));
  EXPECT_FALSE(why(input, id("loss", Role::kLoss, "value")));
}

// A run that is within `bound` by `headroom`, and an isolated leg off by `err`.
TensorJudgement RunAndAlone(double bound, double headroom, double err) {
  TensorJudgement out;
  out.id = Output();
  out.legs = {JudgedLeg("real", headroom), JudgedLeg(kLow, 2)};
  out.legs[0].bound = bound;
  out.legs[1].err = err;
  out.deciding_leg = 0;
  out.verdict =
      headroom > 1 ? TensorVerdict::kDiverged : TensorVerdict::kWithin;
  out.isolated = Isolated{};
  out.isolated->verdict = TensorVerdict::kDiverged;
  out.isolated->deciding_leg = 1;
  return out;
}

TEST(ContradictedByRun, OnlyBeyondWhatTheRunCouldHide) {
  EXPECT_TRUE(ContradictedByRun(RunAndAlone(1e-6, 0.1, 1e-2)));
  EXPECT_FALSE(ContradictedByRun(RunAndAlone(1e-6, 0.1, 1.9e-6)));
  EXPECT_FALSE(ContradictedByRun(RunAndAlone(1e-6, 3, 1e-2)));
}

TEST(ContradictedByRun, ByTheStatisticThatTheLegIsOffBy) {
  TensorJudgement wide = RunAndAlone(1e-1, 0.1, 1e-2);
  EXPECT_FALSE(ContradictedByRun(wide));
  const auto with_factor = [&](double off) {
    for (LegJudgement& leg : wide.legs) leg.tests.clear();
    ttrace::Test factor;
    factor.statistic = Statistic::kProjection;
    factor.bound = 1e-6;
    factor.value = 1e-7;
    factor.headroom = 0.1;
    wide.legs[0].Add(factor);
    factor.value = off;
    factor.headroom = 100;
    wide.legs[1].Add(factor);
  };
  with_factor(1e-4);
  EXPECT_TRUE(ContradictedByRun(wide));
  with_factor(1.9e-6);
  EXPECT_FALSE(ContradictedByRun(wide));
}

TEST(ContradictedByRun, NeedsARunThatWasJudged) {
  TensorJudgement open = RunAndAlone(1e-6, 0.1, 1e-2);
  open.legs[0].checkable = false;
  EXPECT_FALSE(ContradictedByRun(open));
  open.deciding_leg = -1;
  EXPECT_FALSE(ContradictedByRun(open));
  TensorJudgement copies = RunAndAlone(1e-6, 0.1, 1e-2);
  copies.isolated->replicas_differ = true;
  EXPECT_FALSE(ContradictedByRun(copies));
}

}  // namespace
}  // namespace ttrace::isolated_verdict_test
