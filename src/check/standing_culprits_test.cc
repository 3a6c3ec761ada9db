#include "src/check/standing_culprits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ttrace::standing_culprits_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Diverged tensors of one run, each with a culprit.
class StandingCulprits : public testing::Test {
 protected:
  TensorJudgement& Add(const std::string& fqn, Role role, int iteration = 0) {
    TensorJudgement t;
    t.id = {fqn, role, iteration, 0, "", Pass::kBackward};
    t.Conclude(Flagged({}, {}));
    t.legs.resize(1);
    t.deciding_leg = 0;
    tensors_.push_back(std::move(t));
    Culprit culprit;
    culprit.fqn = fqn;
    culprit.tensor = tensors_.back().id;
    culprit.iteration = iteration;
    culprits_.push_back(std::move(culprit));
    return tensors_.back();
  }

  // Makes the candidate `factor` times the reference, and `rest` beside it.
  static void Scale(double factor, double rest, TensorJudgement* t) {
    LegJudgement& leg = t->legs[0];
    leg.bound = 1e-6;
    leg.stats.sum_sq_ref = 1;
    leg.stats.sum_err_ref = factor - 1;
    leg.stats.sum_sq_err = (factor - 1) * (factor - 1) + rest * rest;
  }

  std::vector<std::string> Left(const Excuses& excuses) {
    const Standing standing = WithoutExcused(culprits_, tensors_, excuses);
    excused_factors_ = standing.excused_factors;
    std::vector<std::string> names;
    for (const Culprit& culprit : standing.culprits) {
      names.push_back(culprit.fqn);
    }
    return names;
  }

  std::vector<TensorJudgement> tensors_;
  std::vector<Culprit> culprits_;
  bool excused_factors_ = false;
};

TEST_F(StandingCulprits, BesideOtherRowsOnlyWhatNeedsNoReferenceStands) {
  Add("output", Role::kOutput);
  Add("copies", Role::kInput).replicas_differ = true;
  Add("rows", Role::kData).reason.kind = ReasonKind::kForeignPart;
  Add("step", Role::kParamUpdated).reason.kind = ReasonKind::kStepDiffers;
  EXPECT_THAT(Left({}), ElementsAre("output", "copies", "rows", "step"));
  for (const NoteKind kind : {NoteKind::kOtherRows, NoteKind::kComputation,
                              NoteKind::kDropout, NoteKind::kNotGrafted}) {
    EXPECT_THAT(Left(ExcusesOf({{kind, "", ""}})),
                ElementsAre("copies", "rows", "step"));
  }
  for (const NoteKind kind : {NoteKind::kUnsupported, NoteKind::kDamage}) {
    EXPECT_THAT(Left(ExcusesOf({{kind, "", ""}})), IsEmpty());
  }
  EXPECT_EQ(Left(ExcusesOf({{NoteKind::kNotice, "", ""}})).size(), 4u);
}

TEST_F(StandingCulprits, AFactorIsExcusedByWhatItIsAndNotByWhatItIsCalled) {
  Scale(0.5, 1e-7, &Add("factor", Role::kGradReduced));
  Scale(0.5, 0.3, &Add("more", Role::kGradReduced));
  Scale(0.5, 1e-7, &Add("later", Role::kGradReduced, 1));
  Scale(0.5, 1e-7, &Add("local", Role::kGradLocal));
  Excuses excuses;
  EXPECT_EQ(Left(excuses).size(), 4u);
  EXPECT_FALSE(excused_factors_);
  excuses.unlike_gradients = {0};
  EXPECT_THAT(Left(excuses), ElementsAre("more", "later", "local"));
  EXPECT_TRUE(excused_factors_);
}

TEST_F(StandingCulprits, GradientsThatAreAPartOfTheOthersAreNotCompared) {
  Add("local", Role::kGradLocal);
  Add("reduced", Role::kGradReduced);
  Add("norm", Role::kGradNorm);
  Add("made", Role::kGradInput);
  Add("reduced.later", Role::kGradReduced, 1);
  Excuses excuses;
  excuses.incomplete_gradients = {0};
  EXPECT_THAT(Left(excuses), ElementsAre("made", "reduced.later"));
}

TEST_F(StandingCulprits, WhatDivergedHasAPlace) {
  EXPECT_THAT(FirstDiverged(tensors_), IsEmpty());
  Add("within", Role::kOutput).Conclude(Settled(TensorVerdict::kWithin, {}));
  Add("out", Role::kOutput, 1);
  Add("later", Role::kOutput, 1);
  const auto first = FirstDiverged(tensors_);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].fqn, "out");
  EXPECT_EQ(first[0].iteration, 1);
}

TEST(Insert, PutsWhatNoTensorShowsAtItsMoment) {
  const auto culprit = [](const std::string& fqn, int iteration,
                          Direction direction) {
    Culprit made;
    made.fqn = fqn;
    made.iteration = iteration;
    made.direction = direction;
    return made;
  };
  const auto names = [&](Moment moment) {
    std::vector<Culprit> all = {culprit("f0", 0, Direction::kForward),
                                culprit("b0", 0, Direction::kBackward),
                                culprit("u0", 0, Direction::kUpdate),
                                culprit("f1", 1, Direction::kForward)};
    Insert({culprit("x", 0, Direction::kUpdate),
            culprit("y", 0, Direction::kUpdate)},
           moment, &all);
    std::string out;
    for (const Culprit& one : all) out += one.fqn + " ";
    return out;
  };
  EXPECT_EQ(names(Moment::kBegin), "x y f0 b0 u0 f1 ");
  EXPECT_EQ(names(Moment::kBackward), "f0 x y b0 u0 f1 ");
  EXPECT_EQ(names(Moment::kStep), "f0 b0 x y u0 f1 ");
  EXPECT_EQ(names(Moment::kAfterStep), "f0 b0 u0 x y f1 ");
}

}  // namespace
}  // namespace ttrace::standing_culprits_test
