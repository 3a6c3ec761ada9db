#include "src/localize/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/localize/testing/isolated_run.h"

namespace ttrace::agreement_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Names(const Agreement& found) {
  std::vector<std::string> out;
  for (const Culprit& culprit : found.culprits) out.push_back(culprit.fqn);
  return out;
}

std::string Words(const IsolatedRun& run) {
  return AgreementWords(run.Isolate(), run.Join());
}

TEST(Agree, ACleanRunHasNothingToAgreeOn) {
  const IsolatedRun run;
  EXPECT_TRUE(run.Join().culprits.empty());
  EXPECT_THAT(Words(run), HasSubstr("no faulty places; dataflow agrees"));
}

TEST(Agree, ThePlaceThatBothNameIsOneCulprit) {
  IsolatedRun run;
  run.EndToEnd("layers.0.mlp", Role::kOutput);
  run.EndToEnd("layers.0", Role::kOutput);
  run.Alone("layers.0.mlp", Role::kOutput);
  run.Alone("layers.1.mlp", Role::kOutput);
  const Agreement found = run.Join();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.mlp"));
  const Culprit& culprit = found.culprits[0];
  EXPECT_THAT(culprit.found_by, ElementsAre("dataflow", "isolation"));
  EXPECT_EQ(culprit.disagreement, "");
  EXPECT_EQ(culprit.headroom, 20);
  EXPECT_EQ(culprit.affected.count, 2);
  EXPECT_EQ(culprit.shown_by.size(), 2u);
  EXPECT_THAT(culprit.ranks, ElementsAre(0, 1));
  EXPECT_THAT(culprit.where, HasSubstr("within bounds"));
  EXPECT_THAT(culprit.where, HasSubstr("isolated, on the reference"));
  EXPECT_EQ(found.downstream, 1);
  EXPECT_THAT(Words(run), HasSubstr("1 faulty place; dataflow agrees"));
}

TEST(Agree, TheEarlierTensorNamesTheCulprit) {
  // Isolation has no verdict on the first layer.
  IsolatedRun run;
  run.EndToEnd("layers.0.mlp", Role::kOutput);
  run.NotJudgedAlone("layers.0.mlp", Role::kOutput);
  run.Alone("layers.1.mlp", Role::kOutput);
  const Agreement found = run.Join();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.mlp"));
  EXPECT_THAT(found.culprits[0].found_by, ElementsAre("dataflow", "isolation"));
}

TEST(Agree, AllThatEitherWayFoundOfAPlaceIsCounted) {
  IsolatedRun run;
  for (const char* fqn : {"layers.0.mlp.weight", "layers.1.mlp.weight"}) {
    run.EndToEnd(fqn, Role::kGradReduced);
  }
  run.Alone("layers.0.mlp.weight", Role::kGradReduced);
  const Agreement found = run.Join();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.mlp.weight"));
  EXPECT_EQ(found.culprits[0].affected.count, 2);
}

TEST(Agree, WhatNoiseHidesEndToEndIsAddedAndSaysSo) {
  IsolatedRun run;
  run.Alone("layers.1.mlp", Role::kOutput);
  const Agreement found = run.Join();
  ASSERT_THAT(Names(found), ElementsAre("layers.1.mlp"));
  EXPECT_THAT(found.culprits[0].found_by, ElementsAre("isolation"));
  EXPECT_THAT(found.culprits[0].disagreement,
              HasSubstr("within its bound (headroom 0.1)"));
  EXPECT_THAT(Words(run), HasSubstr("1 named by isolation only"));
}

TEST(Agree, ASecondPlaceInTheSameContainerIsNotDataflowsToo) {
  IsolatedRun run;
  run.Alone("layers.0.attn.core", Role::kInput, "q");
  run.EndToEnd("layers.0.attn.core", Role::kInput, "q");
  run.Alone("layers.0.attn.proj", Role::kInput);
  const Agreement found = run.Join();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.attn", "layers.0.attn"));
  EXPECT_THAT(found.culprits[0].found_by, ElementsAre("dataflow", "isolation"));
  EXPECT_THAT(found.culprits[0].where, HasSubstr("between qkv output 0"));
  EXPECT_THAT(found.culprits[1].found_by, ElementsAre("isolation"));
}

TEST(Agree, OneTensorLaidToTwoPlacesIsOneCulprit) {
  // Dataflow blames the nearest container, isolation knows whose code it was.
  IsolatedRun run;
  run.Alone("layers.0.attn.proj", Role::kGradOutput);
  run.EndToEnd("layers.0.attn.proj", Role::kGradOutput);
  run.SeenFirst("layers.0.attn.proj", "layers.0.attn");
  const Agreement found = run.Join();
  ASSERT_THAT(Names(found), ElementsAre("layers.0"));
  EXPECT_THAT(found.culprits[0].found_by, ElementsAre("dataflow", "isolation"));
}

TEST(Agree, WhatLiesDownstreamEndToEndIsAddedAndSaysOfWhat) {
  IsolatedRun run;
  for (const char* fqn : {"embedding", "layers.0.norm"}) {
    run.EndToEnd(fqn, Role::kOutput).Alone(fqn, Role::kOutput);
  }
  run.EndToEnd("layers.0.norm", Role::kInput);
  const Agreement found = run.Join();
  ASSERT_THAT(Names(found), ElementsAre("embedding", "layers.0.norm"));
  EXPECT_THAT(found.culprits[1].found_by, ElementsAre("isolation"));
  EXPECT_THAT(found.culprits[1].disagreement,
              HasSubstr("downstream of embedding"));
}

TEST(Agree, WhatCannotBeJudgedEndToEndIsAddedAndSaysWhy) {
  IsolatedRun run;
  run.Verdict("layers.1.mlp", Role::kOutput, TensorVerdict::kNotCheckable);
  run.Alone("layers.1.mlp", Role::kOutput);
  EXPECT_THAT(run.Join().culprits.at(0).disagreement,
              HasSubstr("cannot be judged"));
}

TEST(Agree, AnEarlierCulpritOfIsolationExplainsAPlaceThatIsCleanAlone) {
  // The fault is diluted end to end until it shows two modules later.
  IsolatedRun run;
  run.Alone("layers.0.attn.core", Role::kOutput);
  run.EndToEnd("layers.1.mlp", Role::kOutput);
  const Agreement found = run.Join();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.attn.core"));
  EXPECT_EQ(found.downstream, 1);
  ASSERT_EQ(found.dropped.size(), 1u);
  EXPECT_THAT(Words(run), HasSubstr("layers.1.mlp (forward, headroom 10 end to "
                                    "end, 0.2 isolated) follows from "
                                    "layers.0.attn.core"));
}

TEST(Agree, APlaceThatIsCleanAloneAndUnexplainedStaysWithItsDoubt) {
  IsolatedRun run;
  run.EndToEnd("layers.0.mlp", Role::kOutput);
  run.Alone("layers.1.attn.core", Role::kGradInput);  // later
  const Agreement found = run.Join();
  ASSERT_THAT(Names(found), ElementsAre("layers.0.mlp", "layers.1.attn.core"));
  EXPECT_THAT(found.culprits[0].found_by, ElementsAre("dataflow"));
  EXPECT_THAT(found.culprits[0].disagreement,
              HasSubstr("its headroom is 0.2, end to end 10"));
  EXPECT_THAT(Words(run), HasSubstr("1 named by dataflow only"));
}

TEST(Agree, NothingIsSaidWhereIsolationCannotLook) {
  IsolatedRun run;
  run.Alone("embedding", Role::kOutput).EndToEnd("embedding", Role::kOutput);
  run.EndToEnd("layers.0.mlp.weight", Role::kParamUpdated);
  const Agreement found = run.Join();
  ASSERT_THAT(Names(found), ElementsAre("embedding", "layers.0.mlp.weight"));
  EXPECT_THAT(found.culprits[1].found_by, ElementsAre("dataflow"));
  EXPECT_EQ(found.culprits[1].disagreement, "");
  EXPECT_THAT(Words(run), HasSubstr("dataflow agrees"));
}

TEST(Agree, WhatIsolationLaysToAnotherPlaceIsDownstream) {
  // Alone, the parameter's gradient is wrong because its module is.
  IsolatedRun run;
  run.EndToEnd("layers.0.mlp.weight", Role::kGradLocal);
  run.Alone("layers.0.mlp.weight", Role::kGradLocal);
  run.Alone("layers.0.mlp", Role::kGradInput);
  const Agreement found = run.Join();
  EXPECT_THAT(Names(found), ElementsAre("layers.0.mlp"));
}

TEST(Agree, CulpritsStandInExecutionOrder) {
  IsolatedRun run;
  run.Alone("head", Role::kGradInput).EndToEnd("head", Role::kGradInput);
  run.Alone("layers.1.mlp", Role::kOutput);
  EXPECT_THAT(Names(run.Join()), ElementsAre("layers.1.mlp", "head"));
}

TEST(Agree, TheNextIterationOfAFaultIsNotASecondOne) {
  IsolatedRun run;
  run.Alone("embedding", Role::kOutput).EndToEnd("embedding", Role::kOutput);
  run.Alone("embedding", Role::kOutput, "", 1);
  run.EndToEnd("layers.1.mlp", Role::kOutput, "", 1);
  EXPECT_THAT(Names(run.Join()), ElementsAre("embedding"));
}

// Weights and data are the reference's again: what was wrong once explains
// nothing that is wrong later.
TEST(Agree, AFaultOfOneIterationDoesNotHideAnotherOfTheNext) {
  IsolatedRun run;
  run.Alone("embedding", Role::kOutput).EndToEnd("embedding", Role::kOutput);
  run.EndToEnd("layers.1.mlp", Role::kOutput, "", 1);
  EXPECT_THAT(Names(run.Join()), ElementsAre("embedding", "layers.1.mlp"));
}

}  // namespace
}  // namespace ttrace::agreement_test
