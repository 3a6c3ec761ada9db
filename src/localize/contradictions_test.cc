#include "src/localize/contradictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/localize/testing/isolated_run.h"

namespace ttrace::contradictions_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<ContradictionKind> Kinds(const std::vector<Contradiction>& found) {
  std::vector<ContradictionKind> kinds;
  for (const Contradiction& one : found) kinds.push_back(one.kind);
  return kinds;
}

// Of the one culprit of the run.
std::vector<ContradictionKind> Contradict(
    const std::vector<TensorJudgement>& tensors, const Culprit& culprit) {
  return Kinds(Contradicting(culprit, tensors));
}

std::vector<ContradictionKind> Contradict(const IsolatedRun& run) {
  const Agreement joined = run.Join();
  EXPECT_EQ(joined.culprits.size(), 1u);
  return Contradict(run.tensors(), joined.culprits.at(0));
}

TEST(Contradicting, AModuleThatIsCleanInIsolationIsNotConvicted) {
  for (const Role role : {Role::kOutput, Role::kGradInput}) {
    IsolatedRun run;
    run.EndToEnd("layers.1.mlp", role);
    EXPECT_THAT(Contradict(run),
                ElementsAre(ContradictionKind::kCleanIsolated));
    run.Alone("layers.1.mlp", role);
    EXPECT_THAT(Contradict(run), IsEmpty());
  }
}

TEST(Contradicting, WhatIsolationDoesNotJudgeContradictsNothing) {
  IsolatedRun run;
  run.EndToEnd("layers.1.mlp", Role::kOutput);
  run.NotReplaced("layers.1.mlp", Role::kOutput);
  EXPECT_THAT(Contradict(run), IsEmpty());
  IsolatedRun without;
  without.EndToEnd("layers.1.mlp", Role::kOutput);
  without.NotJudgedAlone("layers.1.mlp", Role::kOutput);
  EXPECT_THAT(Contradict(without), IsEmpty());
}

// Code between modules, and what was left in a gradient before.
TEST(Contradicting, WhatAModuleDoesNotMakeAloneStands) {
  IsolatedRun between;
  between.EndToEnd("layers.1.mlp", Role::kInput);
  EXPECT_THAT(Contradict(between), IsEmpty());
  for (const Role role : {Role::kGradLocal, Role::kGradReduced}) {
    IsolatedRun run;
    run.EndToEnd("layers.1.mlp.weight", role);
    EXPECT_THAT(Contradict(run), IsEmpty());
  }
}

// A culprit of one iteration, and two reduced gradients of it.
struct Fed {
  explicit Fed(const TensorId& id) {
    culprit.tensor = id;
    culprit.stage = Stage::kInput;
    tensors.resize(3);
    tensors[0].id = id;
    tensors[0].verdict = TensorVerdict::kDiverged;
    for (const size_t i : {1u, 2u}) {
      tensors[i].id = {"fc" + std::to_string(i), Role::kGradReduced, 0, 0, "",
                       Pass::kBackward};
      tensors[i].verdict = TensorVerdict::kWithin;
    }
  }
  std::vector<ContradictionKind> Kinds() const {
    return contradictions_test::Kinds(Contradicting(culprit, tensors));
  }

  Culprit culprit;
  std::vector<TensorJudgement> tensors;
};

const TensorId kItem = {"data", Role::kData, 0, 0, "x", Pass::kForward};
const TensorId kInput = {"", Role::kInput, 0, 0, "x", Pass::kForward};

TEST(Contradicting, OtherDataWouldChangeTheGradients) {
  for (const TensorId& id : {kItem, kInput}) {
    Fed run(id);
    const auto found = Contradicting(run.culprit, run.tensors);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].kind, ContradictionKind::kCleanGradients);
    EXPECT_EQ(found[0].count, 2);
  }
}

TEST(Contradicting, GradientsContradictDataOnlyIfAllAreJudgedAndClean) {
  for (const TensorVerdict verdict :
       {TensorVerdict::kDiverged, TensorVerdict::kNotCheckable,
        TensorVerdict::kUnmatched}) {
    Fed run(kInput);
    run.tensors[2].verdict = verdict;
    EXPECT_THAT(run.Kinds(), IsEmpty());
    run.tensors[2].id.iteration = 1;  // that is another one's
    EXPECT_THAT(run.Kinds(), ElementsAre(ContradictionKind::kCleanGradients));
  }
  Fed zeros(kInput);
  zeros.tensors[1].all_zero = zeros.tensors[2].all_zero = true;
  EXPECT_THAT(zeros.Kinds(), IsEmpty());
  Fed between(kInput);
  between.culprit.stage = Stage::kCompute;
  EXPECT_THAT(between.Kinds(), IsEmpty());
  Fed parameter({"fc", Role::kParam, 0, 0, "", Pass::kForward});
  EXPECT_THAT(parameter.Kinds(), IsEmpty());
}

TEST(Contradicting, ABoundThatMeansNothingConvictsNobody) {
  Fed run({"fc", Role::kOutput, 0, 0, "0", Pass::kForward});
  run.culprit.stage = Stage::kCompute;
  run.tensors[0].legs.resize(1);
  run.tensors[0].deciding_leg = 0;
  EXPECT_THAT(run.Kinds(), IsEmpty());
  run.tensors[0].legs[0].checkable = false;
  run.tensors[0].legs[0].bound = 300;
  const auto found = Contradicting(run.culprit, run.tensors);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, ContradictionKind::kWideBound);
  EXPECT_EQ(found[0].value, 300);
}

TEST(Contradicting, WhatNeedsNoBoundStands) {
  const auto stands = [](auto change) {
    Fed run(kInput);
    change(run.tensors[0]);
    return run.Kinds().empty();
  };
  EXPECT_FALSE(stands([](TensorJudgement&) {}));
  EXPECT_TRUE(stands([](TensorJudgement& t) { t.replicas_differ = true; }));
  EXPECT_TRUE(stands([](TensorJudgement& t) { t.nonfinite = true; }));
  EXPECT_TRUE(stands([](TensorJudgement& t) { t.not_repeatable = true; }));
  for (const ReasonKind kind :
       {ReasonKind::kForeignPart, ReasonKind::kStepDiffers,
        ReasonKind::kNotUpdated}) {
    EXPECT_TRUE(stands([&](TensorJudgement& t) { t.reason.kind = kind; }));
  }
}

TEST(Contradicting, ASettingIsAFactBesideTheTensors) {
  Fed run(kInput);
  run.culprit.tensor.fqn = "AdamW";
  EXPECT_THAT(run.Kinds(), IsEmpty());
}

}  // namespace
}  // namespace ttrace::contradictions_test
