#include "src/localize/isolation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/localize/testing/isolated_run.h"

namespace ttrace::isolation_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> Names(const IsolationOutcome& found) {
  std::vector<std::string> out;
  for (const Culprit& culprit : found.culprits) out.push_back(culprit.fqn);
  return out;
}

TEST(Isolation, ACleanRunIsJudgedAndHasNoCulprit) {
  const IsolationOutcome found = IsolatedRun().Isolate();
  EXPECT_TRUE(found.culprits.empty());
  EXPECT_EQ(found.judged, found.of);
  EXPECT_GT(found.of, 100);
  EXPECT_EQ(found.worst_clean, 0.2);
}

TEST(Isolation, AnOutputConvictsItsModuleAndExplainsWhatItReaches) {
  const IsolationOutcome found =
      IsolatedRun()
          .Alone("layers.0.attn.core", Role::kOutput)
          .Alone("layers.0.attn.proj", Role::kInput)  // an edge behind it
          .Alone("layers.0.attn.core", Role::kGradInput)
          .Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.attn.core"));
  EXPECT_EQ(found.culprits[0].direction, Direction::kForward);
  EXPECT_EQ(found.culprits[0].headroom, 20);
  EXPECT_THAT(found.culprits[0].found_by, ElementsAre("isolation"));
  EXPECT_THAT(found.culprits[0].ranks, ElementsAre(1));
  EXPECT_EQ(found.explained.size(), 3u);
}

TEST(Isolation, AContainerIsNamedOnlyIfNothingBelowItIsOut) {
  IsolatedRun run;
  run.Alone("layers.0", Role::kOutput);
  EXPECT_THAT(Names(run.Isolate()), ElementsAre("layers.0"));
  run.Alone("layers.0.attn.proj", Role::kOutput);
  run.Alone("layers.0.attn", Role::kOutput);
  EXPECT_THAT(Names(run.Isolate()), ElementsAre("layers.0.attn.proj"));
}

TEST(Isolation, CodeBetweenModulesIsNamedByItsTwoEnds) {
  const IsolationOutcome found =
      IsolatedRun()
          .Alone("layers.0.attn.core", Role::kInput, "q")
          .Alone("layers.0.attn.core", Role::kInput, "k")
          .Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.attn"));
  EXPECT_EQ(found.culprits[0].affected.count, 2);
  EXPECT_THAT(found.culprits[0].where,
              HasSubstr("between qkv output 0 and core input q, in "
                        "layers.0.attn"));
}

TEST(Isolation, CodeBeforeTheFirstModuleStartsAtTheContainersInput) {
  const IsolationOutcome found =
      IsolatedRun().Alone("layers.1.norm", Role::kInput).Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.1"));
  EXPECT_THAT(found.culprits[0].where,
              HasSubstr("between the input of layers.1 and norm input x"));
}

// Nobody knows what reached the first module of a container that was not seen:
// errors from before it, if the reference's values were not put in its place.
TEST(Isolation, AContainerOfWhichNothingWasSeenIsNotBlamedForWhatArrivesFirst) {
  IsolatedRun forward;
  forward.Alone("layers.1.norm", Role::kInput);
  EXPECT_THAT(Names(forward.Isolate()), ElementsAre("layers.1"));
  forward.NotJudgedAlone("layers.1", Role::kInput);
  EXPECT_THAT(Names(forward.Isolate()), IsEmpty());
  IsolatedRun backward;
  backward.Alone("layers.1.mlp", Role::kGradOutput);
  EXPECT_THAT(Names(backward.Isolate()), ElementsAre("layers.1"));
  backward.NotJudgedAlone("layers.1", Role::kGradOutput);
  EXPECT_THAT(Names(backward.Isolate()), IsEmpty());
}

TEST(Isolation, AWrongResidualSumDoesNotConvictItsContainerTwice) {
  // The sum before the mlp reaches the mlp and the layer's own output.
  const IsolationOutcome found = IsolatedRun()
                                     .Alone("layers.0.mlp", Role::kInput)
                                     .Alone("layers.0", Role::kOutput)
                                     .Alone("layers.1", Role::kInput)
                                     .Alone("layers.0.norm", Role::kGradOutput)
                                     .Alone("layers.0", Role::kGradInput)
                                     .Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.0"));
  EXPECT_EQ(found.culprits[0].tensor.fqn, "layers.0.mlp");
}

TEST(Isolation, TheConsumerIsBlamedBackward) {
  const IsolationOutcome found =
      IsolatedRun()
          .Alone("layers.0.attn.qkv", Role::kGradInput)
          .Alone("layers.0.attn", Role::kGradInput)
          .Alone("layers.0.norm", Role::kGradOutput)  // an edge
          .Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.attn.qkv"));
  EXPECT_EQ(found.culprits[0].direction, Direction::kBackward);
  EXPECT_EQ(found.culprits[0].stage, Stage::kCompute);
}

TEST(Isolation, CodeBetweenModulesIsNamedBackwardToo) {
  const IsolationOutcome found =
      IsolatedRun().Alone("layers.0.attn.qkv", Role::kGradOutput).Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.attn"));
  EXPECT_EQ(found.culprits[0].direction, Direction::kBackward);
  EXPECT_THAT(found.culprits[0].where,
              HasSubstr("between core grad_input k and qkv grad_output 0"));
}

TEST(Isolation, OfModulesOfWhichOnlyWhatArrivesIsKnownTheContainerIsNamed) {
  IsolatedRun run;
  for (const char* name : {"qkv", "core", "proj"}) {
    for (const Role role : {Role::kInput, Role::kOutput, Role::kGradInput}) {
      run.NotJudgedAlone(std::string("layers.0.attn.") + name, role);
    }
  }
  run.Alone("layers.0.attn.proj", Role::kGradOutput);
  const IsolationOutcome found = run.Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.attn"));
  EXPECT_THAT(found.culprits[0].where,
              HasSubstr("between the gradient at layers.0.attn and proj "
                        "grad_output 0"));
}

TEST(Isolation, AContainersWrongForwardExplainsTheGradientsThatItHandsOver) {
  const IsolationOutcome found =
      IsolatedRun()
          .Alone("layers.0.attn", Role::kOutput)
          .Alone("layers.0.attn.qkv", Role::kGradOutput)
          .Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.attn"));
  EXPECT_EQ(found.culprits[0].direction, Direction::kForward);
}

TEST(Isolation, AModulesOutputMayBeItsContainersToo) {
  // One tensor, one gradient; the mlp's grad_input makes it.
  IsolatedRun run;
  run.Alone("layers.0.mlp", Role::kGradInput);
  run.Alone("layers.0.attn.proj", Role::kGradOutput);
  EXPECT_THAT(Names(run.Isolate()),
              ElementsAre("layers.0.mlp", "layers.0.attn"));
  run.SeenFirst("layers.0.attn.proj", "layers.0.attn");
  EXPECT_THAT(Names(run.Isolate()), ElementsAre("layers.0.mlp"));
}

TEST(Isolation, WhatComesLaterExplainsNothing) {
  const IsolationOutcome found =
      IsolatedRun()
          .Alone("layers.0.attn.core", Role::kInput, "q")
          .Alone("layers.0.attn.proj", Role::kOutput)
          .Isolate();
  EXPECT_THAT(Names(found), ElementsAre("layers.0.attn", "layers.0.attn.proj"));
}

TEST(Isolation, AnErrorComesInThroughAGradientThatWasNotReplaced) {
  IsolatedRun run;
  run.Alone("layers.0.attn", Role::kGradOutput);
  run.NotReplaced("layers.0.attn", Role::kGradOutput);
  run.Alone("layers.0.attn.qkv", Role::kGradOutput);
  EXPECT_THAT(Names(run.Isolate()), ElementsAre("layers.0"));
}

TEST(Isolation, TheLossIsJudgedByItsOwnInputs) {
  EXPECT_THAT(Names(IsolatedRun().Alone("loss", Role::kLoss).Isolate()),
              ElementsAre("loss"));
  EXPECT_THAT(Names(IsolatedRun()
                        .Alone("head", Role::kOutput)
                        .Alone("", Role::kOutput)
                        .Alone("loss", Role::kLoss)
                        .Alone("", Role::kGradOutput)
                        .Isolate()),
              ElementsAre("head"));
  EXPECT_THAT(Names(IsolatedRun()
                        .Alone("", Role::kOutput)
                        .Alone("", Role::kGradOutput)
                        .Isolate()),
              ElementsAre(""));
  // What the loss sends back may not be recorded at the model's own outputs.
  EXPECT_THAT(Names(IsolatedRun()
                        .NotJudgedAlone("", Role::kGradOutput)
                        .Alone("loss", Role::kLoss)
                        .Alone("head", Role::kGradOutput)
                        .Isolate()),
              ElementsAre("loss"));
  const IsolationOutcome backward =
      IsolatedRun().Alone("", Role::kGradOutput).Isolate();
  ASSERT_THAT(Names(backward), ElementsAre("loss"));
  EXPECT_EQ(backward.culprits[0].direction, Direction::kBackward);
}

TEST(Isolation, TheModelsOwnInputIsTheInputStage) {
  const IsolationOutcome found =
      IsolatedRun().Alone("", Role::kInput).Isolate();
  ASSERT_THAT(Names(found), ElementsAre(""));
  EXPECT_EQ(found.culprits[0].stage, Stage::kInput);
}

TEST(Isolation, AParametersGradientIsItsOwnUnlessItsModuleIsOut) {
  IsolatedRun run;
  run.Alone("layers.0.mlp.weight", Role::kGradLocal);
  run.Alone("layers.0.mlp.weight", Role::kGradReduced);
  const IsolationOutcome found = run.Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.mlp.weight"));
  EXPECT_EQ(found.culprits[0].stage, Stage::kCompute);
  run.Alone("layers.0.mlp", Role::kOutput);
  EXPECT_THAT(Names(run.Isolate()), ElementsAre("layers.0.mlp"));
}

TEST(Isolation, AParameterOfAModuleThatIsNotRecordedIsUsedByWhatContainsIt) {
  IsolatedRun run;
  for (const Role role :
       {Role::kInput, Role::kOutput, Role::kGradOutput, Role::kGradInput}) {
    run.NotJudgedAlone("layers.0.mlp", role);
  }
  run.Alone("layers.0.mlp.weight", Role::kGradLocal);
  EXPECT_THAT(Names(run.Isolate()), ElementsAre("layers.0.mlp.weight"));
  run.Alone("layers.0", Role::kOutput);
  EXPECT_THAT(Names(run.Isolate()), ElementsAre("layers.0"));
}

TEST(Isolation, AParameterThatIsHandedOutGetsItsGradientWhereItIsUsed) {
  // layers.0 adds what proj and attn return, and computes something wrong.
  const std::string weight = "layers.0.attn.proj.weight";
  IsolatedRun run;
  run.Alone("layers.0", Role::kOutput).Alone(weight, Role::kGradLocal);
  EXPECT_THAT(Names(run.Isolate()), ElementsAre("layers.0", weight));
  run.HandsOut(weight, {"layers.0.attn.proj", "layers.0.attn"});
  EXPECT_THAT(Names(run.Isolate()), ElementsAre("layers.0"));
  // Others are used where they belong.
  IsolatedRun own;
  own.Alone("layers.0.attn", Role::kOutput).Alone(weight, Role::kGradLocal);
  EXPECT_THAT(Names(own.Isolate()), ElementsAre("layers.0.attn", weight));
  // Backward only: the gradient that the same code gives proj is out as well.
  IsolatedRun backward;
  backward.HandsOut(weight, {"layers.0.attn.proj", "layers.0.attn"});
  backward.Alone(weight, Role::kGradLocal);
  EXPECT_THAT(Names(backward.Isolate()), ElementsAre(weight));
  backward.Alone("layers.0.attn.proj", Role::kGradOutput);
  EXPECT_THAT(Names(backward.Isolate()), Not(Contains(weight)));
}

TEST(Isolation, AReducedGradientThatAloneIsOutIsCommunication) {
  const IsolationOutcome found =
      IsolatedRun()
          .Alone("layers.1.norm.weight", Role::kGradReduced)
          .Alone("layers.0.norm.weight", Role::kGradReduced)
          .Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.norm.weight"));
  EXPECT_EQ(found.culprits[0].stage, Stage::kCommunication);
  EXPECT_EQ(found.culprits[0].affected.count, 2);
  EXPECT_EQ(found.culprits[0].affected.of, 10);
}

// A candidate that is `factor` times the reference plus `rest`, orthogonal to
// it.
LegJudgement Scaled(double factor, double rest = 0) {
  LegJudgement leg;
  leg.bound = 1e-5;
  leg.stats.count = 100;
  leg.stats.sum_sq_ref = 1;
  leg.stats.sum_err_ref = factor - 1;
  leg.stats.sum_sq_err = (factor - 1) * (factor - 1) + rest * rest;
  return leg;
}

TEST(Isolation, AWrongCountOfTokensExplainsGradientsDividedByIt) {
  const auto culprits = [](const LegJudgement& gradient) {
    IsolatedRun run;
    run.LossTokens(Scaled(0.02));
    run.Alone("layers.0.mlp.weight", Role::kGradReduced);
    run.InLeg("layers.0.mlp.weight", Role::kGradReduced, gradient);
    return Names(run.Isolate());
  };
  EXPECT_THAT(culprits(Scaled(50)), ElementsAre("loss"));
  // Another factor, and more than a factor, are faults of their own.
  EXPECT_THAT(culprits(Scaled(50.01)),
              ElementsAre("loss", "layers.0.mlp.weight"));
  EXPECT_THAT(culprits(Scaled(50, 5)),
              ElementsAre("loss", "layers.0.mlp.weight"));
  // A loss itself divides nothing.
  IsolatedRun value;
  value.Alone("loss", Role::kLoss).InLeg("loss", Role::kLoss, Scaled(0.02));
  value.Alone("layers.0.mlp.weight", Role::kGradReduced);
  value.InLeg("layers.0.mlp.weight", Role::kGradReduced, Scaled(50));
  EXPECT_THAT(Names(value.Isolate()),
              ElementsAre("loss", "layers.0.mlp.weight"));
}

TEST(Isolation, TheSameCodeInOtherLayersIsOneCulprit) {
  const IsolationOutcome found =
      IsolatedRun()
          .Alone("layers.0.attn.core", Role::kGradInput)
          .Alone("layers.1.attn.core", Role::kGradInput)
          .Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.1.attn.core"));
  EXPECT_EQ(found.culprits[0].affected.count, 4);
  EXPECT_THAT(found.culprits[0].affected.examples,
              ElementsAre("layers.1.attn.core", "layers.0.attn.core"));
}

TEST(Isolation, IndependentFaultsAreAllFound) {
  const IsolationOutcome found =
      IsolatedRun()
          .Alone("embedding", Role::kOutput)
          .Alone("layers.0.attn.core", Role::kInput, "q")
          .Alone("layers.0.mlp", Role::kOutput)
          .Alone("head", Role::kGradInput)
          .Alone("layers.1.mlp.weight", Role::kGradLocal)
          .Alone("layers.0.attn.qkv.weight", Role::kGradLocal)
          .Alone("layers.0.norm.weight", Role::kGradReduced)
          .Isolate();
  EXPECT_THAT(Names(found),
              ElementsAre("embedding", "layers.0.attn", "layers.0.mlp", "head",
                          "layers.0.attn.qkv.weight", "layers.1.mlp.weight",
                          "layers.0.norm.weight"));
}

TEST(Isolation, TwoPlacesBetweenModulesOfOneContainerAreTwoCulprits) {
  const IsolationOutcome found =
      IsolatedRun()
          .Alone("layers.0.attn.core", Role::kInput, "q")
          .Alone("layers.0.attn.proj", Role::kInput)
          .Isolate();
  ASSERT_EQ(found.culprits.size(), 2u);
  EXPECT_THAT(found.culprits[1].where,
              HasSubstr("between core output 0 and proj input x"));
}

TEST(Isolation, WhatWasNotIsolatedConvictsNobodyButExplainsWhatItReaches) {
  IsolatedRun run;
  run.Alone("layers.0.attn.core", Role::kOutput);
  run.Alone("layers.0.attn.proj", Role::kInput);
  run.NotReplaced("layers.0.attn.core", Role::kOutput);
  const IsolationOutcome found = run.Isolate();
  EXPECT_TRUE(found.culprits.empty());
  EXPECT_EQ(found.judged, found.of - 1);
  EXPECT_EQ(found.explained.size(), 2u);
}

TEST(Isolation, AnErrorComesInThroughAnInputThatWasNotReplaced) {
  IsolatedRun run;
  run.Alone("layers.0", Role::kInput).NotReplaced("layers.0", Role::kInput);
  run.Alone("layers.0.mlp", Role::kInput);
  EXPECT_THAT(Names(run.Isolate()), ElementsAre(""));  // who delivered it
}

TEST(Isolation, WhatWasNotReplacedMayBeOffByMoreThanWhatItIsHandedTo) {
  // The bound of what comes next is that of replaced values.
  const auto in_leg = [](double err, double bound) {
    LegJudgement leg;
    leg.leg = "isolated";
    leg.err = err;
    leg.bound = bound;
    return leg;
  };
  for (const Role role : {Role::kInput, Role::kGradOutput}) {
    IsolatedRun run;
    run.Alone("layers.0.mlp", role);
    run.InLeg("layers.0.mlp", role, in_leg(4e-3, 1e-6));
    run.InLeg("layers.0", role, in_leg(4e-3, 6e-3));
    EXPECT_THAT(Names(run.Isolate()), ElementsAre("layers.0"));
    run.NotReplaced("layers.0", role);
    EXPECT_THAT(Names(run.Isolate()), IsEmpty());
    IsolatedRun nearly_the_same;
    nearly_the_same.Alone("layers.0.mlp", role);
    nearly_the_same.InLeg("layers.0.mlp", role, in_leg(4e-3, 1e-6));
    nearly_the_same.InLeg("layers.0", role, in_leg(1e-7, 6e-3));
    nearly_the_same.NotReplaced("layers.0", role);
    EXPECT_THAT(Names(nearly_the_same.Isolate()), ElementsAre("layers.0"));
  }
}

TEST(Isolation, WrongDataIsOneCulpritWhereverItGoes) {
  // Positions that a model is given, and hands down to what looks them up.
  IsolatedRun run;
  for (const char* fqn : {"", "embedding"}) {
    run.Alone(fqn, Role::kInput).NotReplaced(fqn, Role::kInput);
  }
  for (const char* fqn : {"embedding", ""}) run.Alone(fqn, Role::kOutput);
  run.Alone("embedding.weight", Role::kGradLocal);
  const IsolationOutcome found = run.Isolate();
  ASSERT_THAT(Names(found), ElementsAre(""));
  EXPECT_EQ(found.culprits[0].stage, Stage::kInput);
  EXPECT_EQ(found.culprits[0].affected.count, 1);
}

TEST(Isolation, AnUnjudgedNeighbourIsNamedBesideTheCodeBetween) {
  IsolatedRun run;
  run.Alone("layers.0.attn.proj", Role::kInput);
  EXPECT_THAT(run.Isolate().culprits.at(0).where, Not(HasSubstr("not judged")));
  run.NotReplaced("layers.0.attn.core", Role::kOutput);
  EXPECT_THAT(run.Isolate().culprits.at(0).where,
              HasSubstr("not judged in isolation: core"));
}

TEST(Isolation, AWrongBufferIsNoFaultOfTheModuleAndParametersWereReplaced) {
  for (const Role role : {Role::kBuffer, Role::kParam}) {
    IsolatedRun run;
    run.State("layers.0.mlp.state", role, TensorVerdict::kDiverged);
    run.Alone("layers.0.mlp", Role::kOutput);
    run.Alone("layers.0.mlp", Role::kGradInput);
    EXPECT_EQ(run.Isolate().culprits.size(), role == Role::kParam ? 1u : 0u);
  }
}

TEST(Isolation, ARecomputedForwardIsAFaultOfItsOwnOnlyIfItWasRightAtFirst) {
  IsolatedRun run;
  run.Recompute("layers.0.mlp", Role::kOutput, true);
  const IsolationOutcome found = run.Isolate();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.mlp"));
  EXPECT_EQ(found.culprits[0].direction, Direction::kBackward);
  run.Alone("layers.0.mlp", Role::kOutput);
  const IsolationOutcome both = run.Isolate();
  ASSERT_THAT(Names(both), ElementsAre("layers.0.mlp"));
  EXPECT_EQ(both.culprits[0].direction, Direction::kForward);
}

}  // namespace
}  // namespace ttrace::isolation_test
