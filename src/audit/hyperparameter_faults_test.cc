#include "src/audit/hyperparameter_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace::hyperparameter_faults_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Note Group(int rank, int iteration, const std::string& values,
           const std::string& parameters, const std::string& kind = "Adam") {
  return {rank, "optimizer_group",
          R"({"iteration":)" + std::to_string(iteration) +
              R"(,"optimizer":0,"group":0,"kind":")" + kind + R"(","values":)" +
              values + R"(,"parameters":)" + parameters + "}"};
}

HyperparameterFaults Compare(const std::vector<Note>& reference,
                             const std::vector<Note>& candidate) {
  const Hyperparameters a = ReadHyperparameters(reference);
  return FindHyperparameterFaults(&a, ReadHyperparameters(candidate));
}

std::string Evidence(const Culprit& culprit) {
  return culprit.classes.front().evidence;
}

TEST(HyperparameterFaults, GroupsAreForgottenAndParametersCompared) {
  const auto found =
      Compare({Group(0, 0, R"({"lr":1e-3})", R"(["a","b","c"])")},
              {Group(0, 0, R"({"lr":1e-3})", R"(["c"])"),
               Group(0, 0, R"({"lr":1e-3})", R"(["b","a"])"),
               Group(1, 0, R"({"lr":1e-3})", R"(["a"])")});
  EXPECT_THAT(found.culprits, IsEmpty());
  EXPECT_THAT(found.notes, IsEmpty());
}

TEST(HyperparameterFaults, OneCulpritForOneDifference) {
  const auto found = Compare(
      {Group(0, 0, R"({"lr":1e-3,"betas":[0.9,0.95]})", R"(["a","b"])"),
       Group(0, 1, R"({"lr":9e-4,"betas":[0.9,0.95]})", R"(["a","b"])")},
      {Group(0, 0, R"({"lr":2e-3,"betas":[0.9,0.999]})", R"(["a","b"])"),
       Group(1, 0, R"({"lr":2e-3,"betas":[0.9,0.999]})", R"(["a","b"])"),
       Group(0, 1, R"({"lr":18e-4,"betas":[0.9,0.999]})", R"(["a","b"])")});
  ASSERT_EQ(found.culprits.size(), 2);
  EXPECT_EQ(Evidence(found.culprits[0]),
            "betas is (0.9, 0.999) where the reference has (0.9, 0.95), for 2 "
            "of 2 parameters (iteration 0)");
  const Culprit& lr = found.culprits[1];
  EXPECT_EQ(Evidence(lr),
            "lr is 0.002 where the reference has 0.001, for 2 of 2 parameters "
            "(iteration 0)");
  EXPECT_EQ(lr.classes.front().bug_class, BugClass::kOtherHyperparameters);
  EXPECT_EQ(lr.classes.front().value, 2);
  EXPECT_EQ(lr.stage, Stage::kOptimizer);
  EXPECT_EQ(lr.direction, Direction::kUpdate);
  EXPECT_EQ(lr.tensor.role, Role::kParamUpdated);
  EXPECT_THAT(lr.ranks, ElementsAre(0, 1));
  EXPECT_THAT(lr.affected.examples, ElementsAre("a", "b"));
}

TEST(HyperparameterFaults, OtherParametersAreAnotherDifference) {
  const auto found =
      Compare({Group(0, 0, R"({"weight_decay":0.1})", R"(["a","b","c"])")},
              {Group(0, 0, R"({"weight_decay":0.1})", R"(["a"])"),
               Group(0, 0, R"({"weight_decay":0.0})", R"(["b"])"),
               Group(0, 0, R"({"weight_decay":0.2})", R"(["c"])")});
  ASSERT_EQ(found.culprits.size(), 2);
  EXPECT_THAT(Evidence(found.culprits[0]), HasSubstr("for 1 of 3 parameters"));
}

TEST(HyperparameterFaults, ADifferenceThatBeginsLaterIsFound) {
  const auto found = Compare({Group(0, 0, R"({"lr":1e-3})", R"(["a"])"),
                              Group(0, 1, R"({"lr":5e-4})", R"(["a"])")},
                             {Group(0, 0, R"({"lr":1e-3})", R"(["a"])"),
                              Group(0, 1, R"({"lr":1e-3})", R"(["a"])")});
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_EQ(found.culprits[0].iteration, 1);
}

TEST(HyperparameterFaults, RoundOffOfAScheduleIsNoDifference) {
  EXPECT_THAT(
      Compare({Group(0, 0, R"({"lr":1e-4})", R"(["a"])")},
              {Group(0, 0, R"({"lr":0.00010000000000000002})", R"(["a"])")})
          .culprits,
      IsEmpty());
  EXPECT_EQ(Compare({Group(0, 0, R"({"lr":1e-4})", R"(["a"])")},
                    {Group(0, 0, R"({"lr":1.0000001e-4})", R"(["a"])")})
                .culprits.size(),
            1);
}

TEST(HyperparameterFaults, WhatHasNoEffectIsNoDifference) {
  const auto found = Compare(
      {Group(0, 0, R"({"weight_decay":0,"decoupled_weight_decay":true})",
             R"(["a"])"),
       Group(0, 0, R"({"weight_decay":0.1,"decoupled_weight_decay":true})",
             R"(["b"])"),
       Group(0, 0, R"({"momentum":0,"dampening":0.5})", R"(["c"])", "SGD"),
       Group(0, 0, R"({"clip_grad":null,"clip_grad_norm_type":2})",
             R"(["d"])")},
      {Group(0, 0, R"({"weight_decay":0,"decoupled_weight_decay":false})",
             R"(["a"])"),
       Group(0, 0, R"({"weight_decay":0.1,"decoupled_weight_decay":false})",
             R"(["b"])"),
       Group(0, 0, R"({"momentum":0,"dampening":0})", R"(["c"])", "SGD"),
       Group(0, 0, R"({"clip_grad":null,"clip_grad_norm_type":3})",
             R"(["d"])")});
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_EQ(found.culprits[0].fqn, "b");
}

TEST(HyperparameterFaults, AnotherAlgorithmIsTheWholeDifference) {
  const auto found = Compare({Group(0, 0, R"({"lr":1})", R"(["a"])")},
                             {Group(0, 0, R"({"lr":2})", R"(["a"])", "SGD")});
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_THAT(Evidence(found.culprits[0]),
              HasSubstr("the optimizer is SGD where the reference has Adam"));
}

TEST(HyperparameterFaults, WhatOneSideDoesNotSayIsANote) {
  const auto silent = Compare({}, {Group(0, 0, R"({"lr":1})", R"(["a"])")});
  EXPECT_THAT(silent.culprits, IsEmpty());
  EXPECT_THAT(silent.notes, ElementsAre(HasSubstr("only the candidate says")));
  const std::vector<Note> clipped = {
      Group(0, 0, R"({"lr":1,"clip_grad":1.0})", R"(["a"])")};
  const std::vector<Note> plain = {Group(0, 0, R"({"lr":1})", R"(["a"])")};
  for (const bool reference : {true, false}) {
    const auto unseen =
        reference ? Compare(clipped, plain) : Compare(plain, clipped);
    EXPECT_THAT(unseen.culprits, IsEmpty());
    EXPECT_THAT(unseen.notes,
                ElementsAre(HasSubstr(reference ? "clip_grad was seen on the "
                                                  "reference's side only"
                                                : "clip_grad was seen on the "
                                                  "candidate's side only")));
  }
}

TEST(HyperparameterFaults, RanksOfOneSideThatDisagreeAreANote) {
  const std::vector<Note> notes = {
      Group(0, 1, R"({"lr":1e-3})", R"(["a","b"])"),
      Group(1, 1, R"({"lr":2e-3})", R"(["a","b"])")};
  const Hyperparameters facts = ReadHyperparameters(notes);
  const auto of = [&](int iteration) {
    return FindHyperparameterFaults(&facts, facts,
                                    IterationRange{iteration, iteration + 1});
  };
  EXPECT_THAT(of(1).culprits, IsEmpty());
  const std::string words =
      "ranks disagree in iteration 1: lr of a is 0.001 on rank 0 and 0.002 on "
      "rank 1 (2 parameters)";
  EXPECT_THAT(of(1).notes, ElementsAre("the reference: " + words,
                                       "the candidate: " + words));
  EXPECT_THAT(of(0).notes, IsEmpty());
}

TEST(HyperparameterFaults, OnlyTheIterationsAskedForAreCompared) {
  const Hyperparameters reference =
      ReadHyperparameters({Group(0, 1, R"({"lr":1})", R"(["a"])")});
  const Hyperparameters candidate =
      ReadHyperparameters({Group(0, 1, R"({"lr":2})", R"(["a"])")});
  const auto culprits = [&](int iteration) {
    return FindHyperparameterFaults(&reference, candidate,
                                    IterationRange{iteration, iteration + 1})
        .culprits.size();
  };
  EXPECT_EQ(culprits(0), 0);
  EXPECT_EQ(culprits(1), 1);
}

TEST(HyperparameterFaults,
     ClippingThatOneSideLacksIsAFaultWhereItDidSomething) {
  const auto of = [&](const std::string& more) {
    return std::vector<Note>{
        Group(0, 0,
              R"({"lr":1,"betas":[0.9,0.99],"eps":1e-8,"weight_decay":0)" +
                  more + "}",
              R"(["a"])")};
  };
  const std::string clips = R"(,"clip_grad":1.0,"clipped":true)";
  const auto found = Compare(of(clips), of(""));
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_THAT(Evidence(found.culprits[0]),
              HasSubstr("clip_grad is none where the reference has 1"));
  EXPECT_THAT(found.culprits[0].ranks, ElementsAre(0));
  const auto other_way = Compare(of(""), of(clips));
  ASSERT_EQ(other_way.culprits.size(), 1);
  EXPECT_THAT(Evidence(other_way.culprits[0]),
              HasSubstr("clip_grad is 1 where the reference has none"));
  // It did nothing; the other side changes gradients otherwise, before they are
  // recorded or behind that; its step is not known.
  EXPECT_THAT(
      Compare(of(R"(,"clip_grad":1.0,"clipped":false)"), of("")).culprits,
      IsEmpty());
  EXPECT_THAT(
      Compare(of(clips), {Group(0, 0, R"({"lr":1})", R"(["a"])")}).culprits,
      IsEmpty());
  for (const std::string change :
       {"gradients changed before they were recorded",
        "the loop's own change of gradients"}) {
    const auto changes = of(",\"" + change + "\":true");
    EXPECT_THAT(Compare(of(clips), changes).culprits, IsEmpty());
    EXPECT_THAT(Compare(changes, of(clips)).culprits, IsEmpty());
  }
  // What clipping did is no setting.
  EXPECT_THAT(
      Compare(of(clips), of(R"(,"clip_grad":1.0,"clipped":false)")).culprits,
      IsEmpty());
}

TEST(HyperparameterFaults, GradientsThatOneLoopClipsByItselfAreUnlike) {
  const std::string changed = "gradients changed before they were recorded";
  const auto of = [](const std::string& values) {
    return std::vector<Note>{Group(0, 3, values, R"(["a"])")};
  };
  const auto own = of(R"({"lr":1,")" + changed + R"(":true})");
  const auto clips = of(R"({"lr":1,"clip_grad":1.0,"clipped":true})");
  EXPECT_THAT(Compare(clips, own).unlike_gradients, ElementsAre(3));
  EXPECT_THAT(Compare(own, clips).unlike_gradients, ElementsAre(3));
  EXPECT_THAT(Compare(own, own).unlike_gradients, IsEmpty());
  EXPECT_THAT(Compare(of(R"({"lr":1})"), own).unlike_gradients, IsEmpty());
  EXPECT_THAT(Compare(of(R"({"lr":1,"clip_grad":1.0,"clipped":false})"), own)
                  .unlike_gradients,
              IsEmpty());
  // Who clips by torch's function as well has changed them for another reason.
  const auto both = of(R"({"lr":1,"clip_grad":1.0,"clipped":true,")" + changed +
                       R"(":true})");
  EXPECT_THAT(Compare(clips, both).unlike_gradients, IsEmpty());
}

TEST(HyperparameterFaults, NoClippingIsNotTheSameAsClipping) {
  const auto found =
      Compare({Group(0, 0, R"({"clip_grad":1.0})", R"(["a"])")},
              {Group(0, 0, R"({"clip_grad":null})", R"(["a"])")});
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_THAT(Evidence(found.culprits[0]), HasSubstr("clip_grad is none"));
}

TEST(HyperparameterFaults, AStepOfNothingIsANote) {
  const auto found = Compare({Group(0, 0, R"({"lr":0.0})", R"(["a"])"),
                              Group(0, 1, R"({"lr":1e-3})", R"(["a"])")},
                             {Group(0, 0, R"({"lr":0})", R"(["a"])"),
                              Group(0, 1, R"({"lr":1e-3})", R"(["a"])")});
  EXPECT_THAT(found.culprits, IsEmpty());
  EXPECT_THAT(found.notes,
              ElementsAre(HasSubstr("the step of iteration 0 moves nothing")));
}

TEST(HyperparameterFaults, WithoutAReferenceRanksAreCompared) {
  const auto found = FindHyperparameterFaults(
      nullptr, ReadHyperparameters({Group(0, 0, R"({"lr":1})", R"(["a"])"),
                                    Group(1, 0, R"({"lr":1})", R"(["a"])"),
                                    Group(2, 0, R"({"lr":3})", R"(["a"])")}));
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_THAT(Evidence(found.culprits[0]), HasSubstr("where most ranks have"));
  EXPECT_THAT(found.culprits[0].ranks, ElementsAre(2));
}

TEST(HyperparameterFaults, UnreadableNotesAreCounted) {
  const std::vector<Note> strange = {
      {0, "optimizer_group", "[]"},
      {0, "optimizer_group",
       R"({"iteration":"x","values":{},"parameters":[]})"},
      {0, "optimizer_group", R"({"iteration":0,"values":[],"parameters":[]})"},
      {0, "optimizer_group",
       R"({"iteration":0,"values":{"lr":{}},"parameters":[1]})"}};
  const auto found = Compare(strange, strange);
  EXPECT_THAT(found.culprits, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("8 notes")));
}

}  // namespace
}  // namespace ttrace::hyperparameter_faults_test
