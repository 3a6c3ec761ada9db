#include "src/judge/verdict_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace ttrace::verdict_rules_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A module's output, or what else `role` is, that legs see on two ranks.
class VerdictRules : public testing::Test {
 protected:
  VerdictRules() {
    facts_.id = {"fc", Role::kOutput, 0, 0, "0", Pass::kForward};
    facts_.reference_shape = facts_.candidate_shape = {4, 4};
  }

  // `wrong` of its elements are not finite in the candidate alone.
  static LegJudgement Leg(double headroom, int rank, int64_t wrong = 0) {
    LegJudgement leg;
    leg.leg = "real";
    leg.headroom = headroom;
    leg.stats.count = 16;
    leg.stats.mismatched = 16;
    leg.stats.nonfinite_cand = leg.stats.nonfinite_differ = wrong;
    leg.ranks = {rank};
    return leg;
  }

  // `changes`: made to what is known of the run around the tensor.
  Outcome Conclude(void (*changes)(Case*) = nullptr) {
    facts_.legs.resize(legs_.size());
    for (size_t i = 0; i < legs_.size(); ++i) {
      facts_.legs[i].usable = true;
      facts_.legs[i].plan = i;
    }
    Case of{facts_, legs_, {}};
    of.seen = SeeEndToEnd(facts_, legs_, std::vector<LegPlan>(legs_.size()),
                          RoutingTies());
    if (changes != nullptr) changes(&of);
    return ConcludeAgainst(of);
  }

  ReasonKind Because(void (*changes)(Case*)) {
    return Conclude(changes).reason.kind;
  }

  TensorFacts facts_;
  std::vector<LegJudgement> legs_;
};

TEST_F(VerdictRules, TheLargestHeadroomDecides) {
  legs_ = {Leg(0.2, 0), Leg(0.7, 1)};
  EXPECT_EQ(Conclude().verdict, TensorVerdict::kSuspect);
  EXPECT_EQ(Conclude().deciding_leg, 1);
  EXPECT_THAT(Conclude().ranks, IsEmpty());  // nothing is wrong with them
  legs_ = {Leg(3, 0), Leg(0.7, 1)};
  EXPECT_EQ(Conclude().verdict, TensorVerdict::kDiverged);
  EXPECT_THAT(Conclude().ranks, ElementsAre(0));
}

TEST_F(VerdictRules, WhatIsNotFiniteDecidesBeforeAnyHeadroom) {
  legs_ = {Leg(0.1, 0, 2), Leg(9, 1)};
  const Outcome out = Conclude();
  EXPECT_EQ(out.verdict, TensorVerdict::kDiverged);
  EXPECT_TRUE(out.nonfinite);
  EXPECT_TRUE(std::isinf(out.headroom));
  EXPECT_EQ(out.deciding_leg, 0);
  EXPECT_THAT(out.ranks, ElementsAre(0));
}

// A mask of other rows has its infinities elsewhere.
TEST_F(VerdictRules, InfinitiesOfReplacedDataAreTheirs) {
  facts_.id.role = Role::kData;
  legs_ = {Leg(0, 0, 2)};
  EXPECT_EQ(Conclude().verdict, TensorVerdict::kDiverged);
  const Outcome out = Conclude([](Case* of) { of->replaced_by_graft = true; });
  EXPECT_EQ(out.reason.kind, ReasonKind::kReplacedByGraft);
  EXPECT_TRUE(out.excused);
  EXPECT_FALSE(out.nonfinite);
}

TEST_F(VerdictRules, InfinitiesAfterOtherRandomNumbersAreNoFinding) {
  for (const double headroom : {0.1, 4.0}) {
    for (const int64_t wrong : {0, 2}) {
      legs_ = {Leg(headroom, 0, wrong)};
      const auto drawn = Conclude([](Case* of) { of->after_draws = true; });
      EXPECT_EQ(drawn.excused, headroom > 1 || wrong > 0);
    }
  }
}

TEST_F(VerdictRules, AfterATieThatFellOtherwiseNothingIsDecided) {
  legs_ = {Leg(4, 0, 2)};
  const auto tied = [](Case* of) {
    of->seen.routed_upstream = true;
    of->seen.nonfinite = false;
    of->seen.deciding_leg = -1;
    of->seen.headroom = 0;
  };
  EXPECT_EQ(Because(tied), ReasonKind::kRoutedUpstream);
  // Another leg decides where the tie does not reach.
  EXPECT_EQ(Conclude([](Case* of) { of->seen.routed_upstream = true; }).verdict,
            TensorVerdict::kDiverged);
}

TEST_F(VerdictRules, WhatIsLeftOpenIsOnlyWhatNothingConvicts) {
  const auto unequal = [](Case* of) { of->unequal_start = true; };
  legs_ = {Leg(4, 0)};
  EXPECT_EQ(Because(unequal), ReasonKind::kUnequalStart);
  legs_ = {Leg(4, 0, 2)};  // no start makes values that are not finite
  EXPECT_EQ(Conclude(unequal).verdict, TensorVerdict::kDiverged);
  legs_ = {Leg(0.1, 0)};
  legs_[0].uncertain = true;
  EXPECT_EQ(Because(nullptr), ReasonKind::kUncertain);
  legs_.push_back(Leg(4, 1));
  EXPECT_EQ(Conclude().verdict, TensorVerdict::kDiverged);
}

TEST_F(VerdictRules, CopiesThatDifferNeedNothingElse) {
  const auto differ = [](Case* of) { of->copies_differ = true; };
  facts_.replicas.differing_ranks = {2, 3};
  legs_ = {Leg(0.1, 0)};
  EXPECT_TRUE(std::isinf(Conclude(differ).headroom));
  EXPECT_THAT(Conclude(differ).ranks, ElementsAre(2, 3));
  legs_ = {Leg(4, 0)};  // what its bound says is sharper
  EXPECT_EQ(Conclude(differ).headroom, 4);
  EXPECT_THAT(Conclude(differ).ranks, ElementsAre(0));
  facts_.in_reference = false;
  legs_.clear();
  EXPECT_EQ(Conclude().verdict, TensorVerdict::kUnmatched);
  EXPECT_EQ(Conclude(differ).verdict, TensorVerdict::kDiverged);
}

TEST_F(VerdictRules, AStatisticOfOwnRowsIsExcusedWhateverItsCopiesAre) {
  legs_ = {Leg(4, 0)};
  const Outcome out = Conclude([](Case* of) {
    of->carried = true;
    of->copies_differ = true;
  });
  EXPECT_EQ(out.reason.kind, ReasonKind::kOwnStatistic);
  EXPECT_TRUE(out.excused);
  EXPECT_EQ(out.headroom, 4);  // for whoever finds that it was used
  EXPECT_THAT(out.ranks, ElementsAre(0));
}

TEST_F(VerdictRules, RanksThatHoldOneAnothersDataAreFoundBeforeTheyAreExcused) {
  facts_.id.role = Role::kData;
  facts_.foreign_parts = RepeatedParts{{0, 1}, {0, 0}};
  legs_ = {Leg(4, 0)};
  const auto replaced = [](Case* of) { of->replaced_by_graft = true; };
  EXPECT_EQ(Because(replaced), ReasonKind::kForeignPart);
  legs_[0].stats = {};
  EXPECT_EQ(Conclude(replaced).verdict, TensorVerdict::kBitwiseEqual);
}

TEST_F(VerdictRules, AStepThatMayBeLeftOutIsNotMissed) {
  facts_.id.role = Role::kParamUpdated;
  facts_.update.emplace();
  facts_.update->ranks = {1};
  legs_ = {Leg(0.1, 0)};
  EXPECT_EQ(Because(nullptr), ReasonKind::kNotUpdated);
  EXPECT_EQ(Because([](Case* of) { of->step_skipped = true; }),
            ReasonKind::kAfterStep);
}

TEST_F(VerdictRules, WithoutAReferenceValuesMustBeFinite) {
  facts_.own.emplace();
  facts_.own->total.nonfinite_cand = 1;
  facts_.own->instances = {{{0}, -1, {}, 0}, {{1}, -1, {}, 0}};
  facts_.own->instances[1].stats.nonfinite_cand = 1;
  Case of{facts_, legs_, {}};
  const Outcome out = ConcludeWithoutReference(of);
  EXPECT_TRUE(out.nonfinite);
  EXPECT_THAT(out.ranks, ElementsAre(1));
  of.may_overflow = true;
  EXPECT_EQ(ConcludeWithoutReference(of).reason.kind, ReasonKind::kOverflow);
  facts_.own->total.nonfinite_cand = 0;
  EXPECT_EQ(ConcludeWithoutReference(of).verdict, TensorVerdict::kWithin);
}

}  // namespace
}  // namespace ttrace::verdict_rules_test
