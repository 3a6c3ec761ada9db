#include "src/localize/dataflow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

namespace ttrace::dataflow_test {
namespace {

// A run of a tiny model, in execution order; Break() puts tensors out of
// bounds.
class TinyRun {
 public:
  TinyRun() {
    for (const int iteration : {0, 1}) AddIteration(iteration);
  }

  // Returns the last of them.
  TensorJudgement& Break(const std::string& fqn, Role role, int iteration = 0,
                         const std::string& arg = "") {
    TensorJudgement* found = nullptr;
    for (TensorJudgement& t : tensors_) {
      if (t.id.fqn != fqn || t.id.role != role || t.id.iteration != iteration ||
          (!arg.empty() && t.id.arg != arg)) {
        continue;
      }
      found = &t;
      t.verdict = TensorVerdict::kDiverged;
      t.headroom = 10;
      t.ranks = {1};
    }
    if (found == nullptr) {
      ADD_FAILURE() << fqn;
      std::abort();
    }
    return *found;
  }

  // The reference alone has it, in the first iteration.
  TensorJudgement& Lose(const std::string& fqn, Role role) {
    TensorJudgement& t = Break(fqn, role);
    t.verdict = TensorVerdict::kUnmatched;
    t.reason.kind = ReasonKind::kNotInCandidate;
    return t;
  }

  // Not recorded in either run.
  void Drop(const std::string& fqn, Role role) {
    std::erase_if(tensors_, [&](const TensorJudgement& t) {
      return t.id.fqn == fqn && t.id.role == role;
    });
  }

  // Recorded, and of which nothing can be said.
  void LeaveOpen(const std::string& fqn, Role role) {
    for (TensorJudgement& t : tensors_) {
      if (t.id.fqn != fqn || t.id.role != role) continue;
      t.verdict = TensorVerdict::kNotCheckable;
    }
  }

  // In the first iteration, behind the gradients of module `other`.
  void MoveBehind(const std::string& fqn, Role role, const std::string& other) {
    const auto at = std::find_if(
        tensors_.begin(), tensors_.end(),
        [&](const auto& t) { return t.id.fqn == fqn && t.id.role == role; });
    const auto last =
        std::find_if(at, tensors_.end(), [&](const TensorJudgement& t) {
          return t.id.fqn == other && t.id.role == Role::kGradInput;
        });
    std::rotate(at, at + 1, last);
  }

  // The forward of a module once more, before its gradients, and out of bounds.
  void BreakRecomputed(const std::string& fqn, Role role) {
    const auto before = std::find_if(
        tensors_.begin(), tensors_.end(), [&](const TensorJudgement& t) {
          return t.id.fqn == fqn && t.id.role == role;
        });
    TensorJudgement again = *before;
    again.id.pass = Pass::kRecompute;
    again.verdict = TensorVerdict::kDiverged;
    again.headroom = 10;
    const auto at =
        std::find_if(before, tensors_.end(), [](const TensorJudgement& t) {
          return t.id.role == Role::kGradOutput;
        });
    tensors_.insert(at, again);
  }

  Localization Find(bool grafted = true) const {
    return Localize(tensors_,
                    {.weights_grafted = grafted, .data_grafted = grafted});
  }

 private:
  void Add(const std::string& fqn, Role role, int iteration,
           const std::string& arg, Pass pass) {
    TensorJudgement t;
    t.id = TensorId{fqn, role, iteration, 0, arg, pass};
    t.order = static_cast<int64_t>(tensors_.size());
    t.verdict = TensorVerdict::kWithin;
    t.headroom = 0.1;
    tensors_.push_back(t);
  }

  void AddIteration(int i) {
    const std::vector<std::string> layers = {"layers.0", "layers.1"};
    for (const auto& l : layers) {
      Add(l + ".fc1.weight", Role::kParam, i, "", Pass::kForward);
    }
    Add("data", Role::kData, i, "tokens", Pass::kForward);
    Add("", Role::kInput, i, "tokens", Pass::kForward);
    Add("embedding", Role::kInput, i, "ids", Pass::kForward);
    Add("embedding", Role::kOutput, i, "0", Pass::kForward);
    for (const auto& l : layers) {
      Add(l, Role::kInput, i, "x", Pass::kForward);
      Add(l + ".fc1", Role::kInput, i, "x", Pass::kForward);
      Add(l + ".fc1", Role::kOutput, i, "0", Pass::kForward);
      Add(l, Role::kOutput, i, "0", Pass::kForward);
    }
    Add("", Role::kOutput, i, "0", Pass::kForward);
    Add("loss", Role::kLoss, i, "value", Pass::kForward);
    Add("", Role::kGradOutput, i, "0", Pass::kBackward);
    for (const auto& l : {layers[1], layers[0]}) {
      Add(l, Role::kGradOutput, i, "0", Pass::kBackward);
      Add(l + ".fc1", Role::kGradOutput, i, "0", Pass::kBackward);
      Add(l + ".fc1", Role::kGradInput, i, "x", Pass::kBackward);
      Add(l, Role::kGradInput, i, "x", Pass::kBackward);
    }
    Add("embedding", Role::kGradOutput, i, "0", Pass::kBackward);
    for (const Role role : {Role::kGradLocal, Role::kGradReduced}) {
      for (const auto& l : {layers[1], layers[0]}) {
        Add(l + ".fc1.weight", role, i, "", Pass::kBackward);
      }
    }
    Add("grad_norm", Role::kGradNorm, i, "", Pass::kOptimizer);
    for (const auto& l : layers) {
      Add(l + ".fc1.weight", Role::kParamUpdated, i, "", Pass::kOptimizer);
      Add(l + ".fc1.weight", Role::kOptimState, i, "exp_avg", Pass::kOptimizer);
    }
  }

  std::vector<TensorJudgement> tensors_;
};

TEST(Localize, ACleanRunHasNoCulprit) {
  const Localization found = TinyRun().Find();
  EXPECT_TRUE(found.culprits.empty());
  EXPECT_EQ(found.downstream, 0);
}

TEST(Localize, AnOutputIsBlamedWhileItsInputsAreWithin) {
  TinyRun run;
  run.Break("layers.0.fc1", Role::kOutput);
  run.Break("layers.0", Role::kOutput);
  run.Break("layers.1", Role::kInput);
  run.Break("layers.1.fc1", Role::kInput);
  run.Break("layers.1.fc1", Role::kOutput);
  run.Break("layers.1", Role::kOutput);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "layers.0.fc1");
  EXPECT_EQ(found.culprits[0].direction, Direction::kForward);
  EXPECT_EQ(found.culprits[0].stage, Stage::kCompute);
  EXPECT_EQ(found.culprits[0].ranks, std::vector<int>{1});
  EXPECT_EQ(found.downstream, 5);
}

TEST(Localize, AContainerIsBlamedOnlyIfItsChildrenAreClean) {
  TinyRun run;
  run.Break("layers.0", Role::kOutput);
  EXPECT_EQ(run.Find().culprits.at(0).fqn, "layers.0");
}

TEST(Localize, CodeBetweenModulesBelongsToTheirContainer) {
  TinyRun run;
  run.Break("layers.1.fc1", Role::kInput);
  run.Break("layers.1.fc1", Role::kOutput);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "layers.1");
}

TEST(Localize, AnotherInputOfTheModelIsTheInputStage) {
  TinyRun run;
  run.Break("", Role::kInput);
  run.Break("embedding", Role::kInput);
  run.Break("embedding", Role::kOutput);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].stage, Stage::kInput);
}

TEST(Localize, ABackwardFaultIsBlamedOnTheConsumer) {
  TinyRun run;
  run.Break("layers.1.fc1", Role::kGradInput);
  run.Break("layers.1", Role::kGradInput);
  run.Break("layers.0", Role::kGradOutput);
  run.Break("layers.0.fc1", Role::kGradOutput);
  run.Break("layers.0.fc1.weight", Role::kGradLocal);
  run.Break("layers.0.fc1.weight", Role::kGradReduced);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "layers.1.fc1");
  EXPECT_EQ(found.culprits[0].direction, Direction::kBackward);
}

TEST(Localize, GradientsBehindAForwardFaultAreDownstream) {
  TinyRun run;
  run.Break("layers.0.fc1", Role::kOutput);
  run.Break("layers.0.fc1", Role::kGradInput);
  run.Break("layers.0.fc1.weight", Role::kGradLocal);
  run.Break("layers.0.fc1.weight", Role::kGradReduced);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.downstream, 3);
}

TEST(Localize, AReducedGradientThatAloneIsOutIsCommunication) {
  TinyRun run;
  run.Break("layers.1.fc1.weight", Role::kGradReduced);
  run.Break("layers.0.fc1.weight", Role::kGradReduced);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "layers.1.fc1.weight");
  EXPECT_EQ(found.culprits[0].stage, Stage::kCommunication);
  EXPECT_EQ(found.culprits[0].affected.count, 2);
  EXPECT_EQ(found.culprits[0].affected.of, 2);
}

TEST(Localize, TheSameFaultInTheNextIterationIsNotASecondOne) {
  TinyRun run;
  for (const int i : {0, 1}) {
    run.Break("layers.1.fc1.weight", Role::kGradReduced, i);
  }
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].iteration, 0);
  EXPECT_EQ(found.culprits[0].affected.count, 1);
}

TEST(Localize, AFaultOfTheSecondIterationAloneIsFound) {
  TinyRun run;
  run.Break("layers.0.fc1", Role::kOutput, 1);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].iteration, 1);
}

TEST(Localize, IndependentForwardFaultsOfDifferentCodeAreBothFound) {
  TinyRun run;
  run.Break("embedding", Role::kOutput);
  run.Break("layers.1.fc1", Role::kOutput);
  EXPECT_EQ(run.Find().culprits.size(), 2u);
}

TEST(Localize, AnUpdateIsBlamedWhileItsGradientIsWithin) {
  TinyRun run;
  run.Break("layers.0.fc1.weight", Role::kParamUpdated);
  Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].stage, Stage::kOptimizer);
  run.Break("layers.0.fc1.weight", Role::kGradReduced);
  found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].stage, Stage::kCommunication);
}

TEST(Localize, AParameterWhoseStateIsWrongTooIsCountedOnce) {
  TinyRun run;
  for (const char* fqn : {"layers.0.fc1.weight", "layers.1.fc1.weight"}) {
    run.Break(fqn, Role::kParamUpdated);
    run.Break(fqn, Role::kOptimState);
  }
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].affected.count, 2);
  EXPECT_EQ(found.culprits[0].affected.of, 2);
}

TEST(Localize, AStepWithoutItsGradientIsBlamedOnWhatShouldHaveMadeIt) {
  TinyRun run;
  run.Break("layers.0.fc1.weight", Role::kParamUpdated);
  // It came out of the backward, and was gone before the step.
  run.Lose("layers.0.fc1.weight", Role::kGradReduced);
  Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].direction, Direction::kUpdate);
  EXPECT_EQ(found.culprits[0].where, "its gradient is gone before the step");
  run.Lose("layers.0.fc1.weight", Role::kGradLocal);
  found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "layers.0.fc1.weight");
  EXPECT_EQ(found.culprits[0].direction, Direction::kBackward);
  EXPECT_EQ(found.culprits[0].stage, Stage::kCompute);
  EXPECT_EQ(found.culprits[0].where,
            "the candidate's backward gives it no gradient");
  // Why it has none is known: it was not recorded, say.
  run.Lose("layers.0.fc1.weight", Role::kGradReduced).excused = true;
  EXPECT_EQ(run.Find().culprits[0].where,
            "its reduced gradient is within bounds");
}

TEST(Localize, TheGradientNormIsTheOptimizers) {
  TinyRun run;
  run.Break("grad_norm", Role::kGradNorm);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].direction, Direction::kUpdate);
  EXPECT_EQ(found.culprits[0].stage, Stage::kOptimizer);
  // Also where the gradients are wrong: it is the norm of those that there are.
  run.Break("layers.0.fc1.weight", Role::kGradReduced);
  EXPECT_EQ(run.Find().culprits.size(), 2u);
}

TEST(Localize, CopiesClippedByOtherNormsAreTheNormsDoing) {
  TinyRun run;
  run.Break("layers.0.fc1.weight", Role::kParamUpdated).replicas_differ = true;
  EXPECT_EQ(run.Find().culprits.size(), 1u);
  TensorJudgement& norm = run.Break("grad_norm", Role::kGradNorm);
  EXPECT_EQ(run.Find().culprits.size(), 2u);
  norm.replicas_differ = true;
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "grad_norm");
  run.Break("layers.0.fc1.weight", Role::kParamUpdated).reason.kind =
      ReasonKind::kNotUpdated;
  EXPECT_EQ(run.Find().culprits.size(), 2u);
}

TEST(Localize, NormsOfCopiesThatDifferAreTheReductionsDoing) {
  TinyRun run;
  TensorJudgement& norm = run.Break("grad_norm", Role::kGradNorm);
  norm.replicas_differ = true;
  norm.headroom = 0.5;
  EXPECT_EQ(run.Find().culprits.at(0).where,
            "ranks report other norms of the same gradients");
  run.Break("layers.0.fc1.weight", Role::kGradReduced);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "layers.0.fc1.weight");
}

TEST(Localize, TheLossIsBlamedWhileActivationsAreWithin) {
  TinyRun run;
  run.Break("loss", Role::kLoss);
  run.Break("", Role::kGradOutput);
  Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "loss");
  EXPECT_EQ(found.culprits[0].direction, Direction::kForward);
  run.Break("layers.1.fc1", Role::kOutput);
  found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "layers.1.fc1");
}

TEST(Localize, TheGradientThatEntersTheModelIsTheLosses) {
  TinyRun run;
  run.Break("", Role::kGradOutput);
  run.Break("layers.1", Role::kGradOutput);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "loss");
  EXPECT_EQ(found.culprits[0].direction, Direction::kBackward);
}

TEST(Localize, AGradientThatArrivesWrongIsThatOfTheCodeBetween) {
  TinyRun run;
  run.Break("layers.1.fc1", Role::kGradOutput);
  run.Break("layers.0.fc1", Role::kGradOutput);
  const Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "layers.1");
  EXPECT_EQ(found.culprits[0].direction, Direction::kBackward);
}

// A module that hands on what one inside of it made: two names of one tensor,
// and the inner one's hook runs first.
TEST(Localize, AGradientThatAModuleIsHandedIsNotThatOfTheCodeInIt) {
  TinyRun run;
  for (const std::string fqn : {"", "layers.1.fc1"}) {
    LegJudgement real;
    real.stats.count = 8;
    real.stats.sum_sq_err = 3;
    real.stats.sum_sq_ref = 2;
    run.Break(fqn, Role::kGradOutput).legs = {real};
  }
  run.MoveBehind("", Role::kGradOutput, "layers.1.fc1");
  Localization found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "loss");
  // Of other values it is another tensor, of a later call for example.
  run.Break("", Role::kGradOutput).legs.front().stats.sum_sq_err = 4;
  found = run.Find();
  ASSERT_EQ(found.culprits.size(), 1u);
  EXPECT_EQ(found.culprits[0].fqn, "layers.1");
}

// What a tensor was made from may not be recorded: then anything that is out
// before it may be the cause.
TEST(Localize, WithoutItsInputsAModuleIsBlamedOnlyIfNothingIsOutBefore) {
  const struct {
    Role role;
    std::string what;  // of layers.0.fc1
    Role made_from;
    std::string from;
  } cases[] = {
      {Role::kOutput, "layers.1.fc1", Role::kInput, "layers.1.fc1"},
      {Role::kGradInput, "layers.0.fc1", Role::kGradOutput, "layers.0.fc1"},
      {Role::kGradLocal, "layers.0.fc1.weight", Role::kGradOutput,
       "layers.0.fc1"},
      {Role::kGradReduced, "layers.0.fc1.weight", Role::kGradLocal,
       "layers.0.fc1.weight"},
  };
  for (const auto& c : cases) {
    for (const bool recorded : {false, true}) {
      TinyRun run;
      if (recorded) {
        run.LeaveOpen(c.from, c.made_from);
      } else {
        run.Drop(c.from, c.made_from);
      }
      run.Break(c.what, c.role);
      EXPECT_EQ(run.Find().culprits.at(0).fqn, c.what) << ToString(c.role);
      run.Break("embedding", Role::kOutput);
      const Localization found = run.Find();
      ASSERT_EQ(found.culprits.size(), 1u) << ToString(c.role);
      EXPECT_EQ(found.culprits[0].fqn, "embedding");
    }
  }
}

TEST(Localize, ARecomputedForwardIsAFaultOfTheBackwardPass) {
  for (const Role role : {Role::kInput, Role::kOutput}) {
    TinyRun run;
    run.BreakRecomputed("layers.1.fc1", role);
    Localization found = run.Find();
    ASSERT_EQ(found.culprits.size(), 1u);
    EXPECT_EQ(found.culprits[0].direction, Direction::kBackward);
    // Unless it is wrong because the forward was.
    run.Break("layers.0.fc1", Role::kOutput);
    found = run.Find();
    ASSERT_EQ(found.culprits.size(), 1u);
    EXPECT_EQ(found.culprits[0].fqn, "layers.0.fc1");
  }
}

TEST(Localize, AnInputThatIsRecomputedIsNoInputOfTheModel) {
  TinyRun run;
  run.BreakRecomputed("", Role::kInput);
  EXPECT_TRUE(run.Find().culprits.empty());
}

TEST(Localize, WhatWasGraftedExplainsNothing) {
  TinyRun weight;
  weight.Break("layers.0.fc1.weight", Role::kParam);
  weight.Break("layers.0.fc1", Role::kOutput);
  TinyRun data;
  data.Break("data", Role::kData);
  data.Break("layers.1.fc1", Role::kInput);
  for (const TinyRun* run : {&weight, &data}) {
    EXPECT_EQ(run->Find(/*grafted=*/true).culprits.size(), 2u);
    EXPECT_EQ(run->Find(/*grafted=*/false).culprits.size(), 1u);
  }
}

TEST(Localize, WithoutGraftingABadUpdateSpoilsTheNextIteration) {
  TinyRun run;
  run.Break("layers.0.fc1.weight", Role::kParamUpdated, 0);
  run.Break("layers.1.fc1", Role::kOutput, 1);
  EXPECT_EQ(run.Find(/*grafted=*/true).culprits.size(), 2u);
  EXPECT_EQ(run.Find(/*grafted=*/false).culprits.size(), 1u);
}

}  // namespace
}  // namespace ttrace::dataflow_test
