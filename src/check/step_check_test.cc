// Checks of runs whose optimizer steps are right, and of runs in which they are
// wrong in one way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/check/check.h"
#include "src/check/testing/step_run.h"
#include "src/judge/reason_words.h"
#include "src/measure/stored_replays.h"
#include "src/report/render.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::step_check_test {
namespace {

using testing::HasSubstr;

// Of whose weight a rank's piece is large enough to be compared, and its step
// to be made again, where it is made.
StepRun Large(StepRun run) {
  run.right_after = true;
  run.weight_shape = {128, 64};
  return run;
}

class StepCheck : public testing::Test {
 protected:
  CheckResult Alone(const StepRun& run) {
    const std::string folder = NewFolder();
    run.Write(folder);
    return Check("", folder);
  }
  CheckResult Against(const StepRun& reference, const StepRun& candidate) {
    const std::string ref = NewFolder();
    const std::string cand = NewFolder();
    reference.Write(ref);
    candidate.Write(cand);
    CheckResult result = Check(ref, cand);
    // Nothing depends on where a step is made again.
    const std::string in_place = NewFolder();
    candidate.Write(in_place, ref);
    EXPECT_EQ(Numbers(Check(ref, in_place)), Numbers(result));
    return result;
  }

  static const TensorJudgement& Find(const CheckResult& result,
                                     const std::string& fqn, Role role,
                                     const std::string& arg = "",
                                     int iteration = 1) {
    for (const TensorJudgement& t : result.tensors) {
      if (t.id.fqn == fqn && t.id.role == role && t.id.arg == arg &&
          t.id.iteration == iteration && t.id.pass == Pass::kOptimizer) {
        return t;
      }
    }
    ADD_FAILURE() << fqn << " " << arg;
    return result.tensors.front();
  }

  // The one culprit of a run with this fault, named by this letter.
  CheckResult Named(const StepRun& run, const std::string& letter,
                    const std::string& words) {
    CheckResult result = Alone(run);
    StepRun right = Large(run);
    StepRun wrong = right;
    right.fault = {};
    Against(right, wrong);
    EXPECT_EQ(result.verdict, Verdict::kDiverged) << words;
    EXPECT_EQ(result.culprits.size(), 1u) << words;
    if (result.culprits.empty()) return result;
    const Culprit& culprit = result.culprits.front();
    EXPECT_EQ(culprit.direction, Direction::kUpdate);
    EXPECT_EQ(culprit.stage, Stage::kOptimizer);
    EXPECT_EQ(culprit.classes.size(), 1u)
        << words << (culprit.hints.empty() ? "" : culprit.hints.front());
    if (culprit.classes.empty()) return result;
    EXPECT_EQ(LetterOf(culprit.classes.front().bug_class), letter);
    EXPECT_THAT(culprit.classes.front().evidence, HasSubstr(words));
    return result;
  }

  // All that a result says but folders, bytes and time.
  static std::string Numbers(CheckResult result) {
    result.seconds = 0;
    result.bytes_compared = 0;
    result.reference.folder = result.candidate.folder = "";
    result.next_steps.clear();
    return RenderJson(result);
  }

 protected:
  std::string NewFolder() { return folder_ / fmt::format("{}", ++count_); }

  static CheckResult Check(const std::string& ref, const std::string& cand) {
    CheckOptions options;
    options.reference = ref;
    options.candidate = cand;
    auto result = RunCheck(options);
    if (!result.ok()) {
      ADD_FAILURE() << result.error().message();
      return {};
    }
    return *std::move(result);
  }

  ScratchFolder folder_;
  int count_ = 0;
};

StepRun Sgd() {
  StepRun run;
  run.kind = "SGD";
  run.rule.algorithm = StepAlgorithm::kSgd;
  run.rule.decoupled = false;
  run.rule.momentum = 0.9;
  return run;
}

StepRun WithMaster() {
  StepRun run;
  run.dtype = DType::kBF16;
  run.master = true;
  return run;
}

TEST_F(StepCheck, RightStepsAreWithinWithoutAReference) {
  for (const StepOrder order : kStepOrders) {
    for (StepRun run : {StepRun(), WithMaster(), Sgd()}) {
      run.order = order;
      run.rule.clip_norm = 0.01;
      const CheckResult result = Alone(run);
      EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
      EXPECT_THAT(result.reason, HasSubstr("steps (6 of parameters)"));
      const TensorJudgement& t = Find(result, "fc.weight", Role::kParamUpdated);
      EXPECT_EQ(t.verdict, TensorVerdict::kWithin);
      ASSERT_NE(t.legs.size(), 0u);
      EXPECT_NE(t.legs.front().Find(Statistic::kStep), nullptr);
    }
  }
}

TEST_F(StepCheck, AmsgradMaximizeAndPureBf16) {
  StepRun run;
  run.dtype = DType::kBF16;
  run.rule.amsgrad = true;
  run.rule.maximize = true;
  EXPECT_EQ(Alone(run).verdict, Verdict::kWithin);
  run.fault.rule = [](StepRule* rule) { rule->maximize = false; };
  const CheckResult result = Named(run, "K", "gradients times -");
  EXPECT_NEAR(result.culprits.front().classes.front().value, -1, 0.01);
}

TEST_F(StepCheck, WithAReferenceAStepIsJudgedByItself) {
  StepRun candidate;
  candidate.order = StepOrder::kApex;
  candidate.mesh = {{"tp", 1}};
  const CheckResult right = Against(StepRun(), candidate);
  EXPECT_EQ(Find(right, "fc.weight", Role::kParamUpdated).verdict,
            TensorVerdict::kWithin);
  EXPECT_EQ(Find(right, "fc.weight", Role::kOptimState, "exp_avg").verdict,
            TensorVerdict::kWithin);
  EXPECT_TRUE(right.culprits.empty());
  candidate.fault.rule = [](StepRule* rule) { rule->eps = 1e-3; };
  candidate.fault.iteration = 1;
  const CheckResult wrong = Against(StepRun(), candidate);
  ASSERT_EQ(wrong.culprits.size(), 1u);
  EXPECT_EQ(wrong.culprits[0].iteration, 1);
  EXPECT_EQ(wrong.culprits[0].affected.count, 2);
  EXPECT_EQ(wrong.culprits[0].affected.of, 2);
  EXPECT_THAT(wrong.culprits[0].classes.at(0).evidence,
              HasSubstr("an epsilon of 0.001 "));
  EXPECT_THAT(RenderJson(wrong), HasSubstr(R"("statistic":"step")"));
}

TEST_F(StepCheck, WhatTheReferenceDoesAsWellIsNoFinding) {
  StepRun both;
  both.fault.rule = [](StepRule* rule) { rule->eps = 1e-3; };
  const CheckResult result = Against(both, both);
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_THAT(RenderJson(result), HasSubstr("are not in the reference either"));
  EXPECT_THAT(RenderJson(Against(both, StepRun())),
              Not(HasSubstr("are not in the reference either")))
      << "the reference's step is made again where the candidate's is off";
  StepRun differ = both;
  differ.order = StepOrder::kApex;
  const CheckResult other = Against(both, differ);
  EXPECT_TRUE(other.culprits.empty());
  EXPECT_EQ(Find(other, "fc.weight", Role::kParamUpdated).reason.kind,
            ReasonKind::kReferenceStep);
}

TEST_F(StepCheck, OfStepsThatAreRightNoStateIsKept) {
  const std::string ref = NewFolder();
  StepRun run = Large(StepRun());
  run.Write(ref);
  run.order = StepOrder::kApex;
  run.fault.iteration = 2;
  run.fault.ranks = {1};
  run.fault.rule = [](StepRule* rule) { rule->eps = 1e-3; };
  const std::string cand = NewFolder();
  run.Write(cand, ref);
  const auto trace = OrDie(Trace::Open(cand));
  int kept = 0;
  for (const Record record : trace->records()) {
    if (record.id().role != Role::kOptimState ||
        record.id().fqn != "fc.weight" || record.id().arg == "step" ||
        record.same_as()) {  // as a weight that was recorded
      continue;
    }
    const bool wrong = record.rank() == 1 && record.id().iteration == 2;
    EXPECT_EQ(record.holds_values(), wrong) << ToString(record.id());
    kept += record.holds_values() ? 1 : 0;
  }
  EXPECT_GT(kept, 0);
  // What a rank found decides: its values are not there to be looked at again.
  const CheckResult result = Check(ref, cand);
  EXPECT_EQ(result.verdict, Verdict::kDiverged);
  ASSERT_EQ(result.culprits.size(), 1u);
  EXPECT_EQ(result.culprits[0].iteration, 2);
  EXPECT_THAT(result.culprits[0].classes.at(0).evidence,
              HasSubstr("an epsilon of 0.001 "));
}

TEST_F(StepCheck, WhatIsMadeOfAnotherGradientKeepsItsValues) {
  const std::string ref = NewFolder();
  StepRun run = Large(StepRun());
  run.Write(ref);
  run.first_size *= 2;
  const std::string cand = NewFolder();
  run.Write(cand, ref);
  const auto trace = OrDie(Trace::Open(cand));
  for (const Record record : trace->records()) {
    EXPECT_TRUE(record.holds_values()) << ToString(record.id());
  }
}

TEST_F(StepCheck, WithoutWhatARankFoundItsStepIsNotJudged) {
  StepRun run = Large(StepRun());
  const std::string ref = NewFolder();
  run.Write(ref);
  const std::string cand = NewFolder();
  run.Write(cand, ref);
  const Side own = OrDie(Side::Open(cand, {}));
  const Side theirs = OrDie(Side::Open(ref, {}));
  const StepCatalog catalog(own, &theirs);
  const StoredReplays stored = ReadStoredReplays(own.trace());
  const StepOfParameter step = {1, "fc.weight"};
  int64_t bytes = 0;
  const ReplayedStep found = OrDie(ReplayStep(catalog, stored, step, &bytes));
  EXPECT_TRUE(found.whole);
  EXPECT_GT(found.Of(StepQuantity::kParameter).judged, 0);
  const ReplayedStep lost = OrDie(ReplayStep(catalog, {}, step, &bytes));
  EXPECT_FALSE(lost.whole);
  EXPECT_EQ(lost.Of(StepQuantity::kFirst).judged, 0);
  ASSERT_FALSE(lost.gaps.empty());
  EXPECT_EQ(lost.gaps.begin()->first.kind, StepGap::Kind::kNotRecorded);
}

TEST_F(StepCheck, StaleValuesAreNamed) {
  StepRun run;
  run.fault.iteration = 1;
  run.fault.skip = run.fault.keep_count = true;
  Named(run, "S", "a step that was not made");
  run.fault = {};
  run.fault.iteration = 1;
  run.fault.keep_parameter = true;
  Named(run, "S", "moments that are updated and a parameter that is not");
  run.fault = {};
  run.fault.keep_moments = true;
  run.fault.iteration = 2;
  Named(run, "S", "moments that the step computes with and does not write");
  run.fault = {};
  run.fault.frozen_moments = true;
  run.fault.iteration = 2;
  Named(run, "S", "moments that are not updated");
  run.fault = {};
  run.fault.old_gradient = true;
  run.fault.iteration = 2;
  Named(run, "S", "the gradient of the iteration before");
  run.fault = {};
  run.fault.iteration = 1;
  run.fault.keep_count = true;
  Named(run, "S", "its count of steps is off by 1");
}

TEST_F(StepCheck, FaultsOfAMasterCopyAreNamed) {
  StepRun run = WithMaster();
  run.fault.keep_copy = true;
  run.fault.iteration = 1;
  Named(run, "S", "the master copy is not written to it");
  run.fault = {};
  run.fault.from_copy = true;
  Named(run, "D", "a master copy that is updated from the working copy");
}

TEST_F(StepCheck, OtherSettingsAreNamed) {
  const auto named = [&](const std::string& words, auto change, auto fault) {
    StepRun run;
    change(&run);
    run.fault.rule = fault;
    Named(run, "H", words);
  };
  const auto same = [](StepRun*) {};
  named("without weight decay (0.1", same,
        [](StepRule* r) { r->weight_decay = 0; });
  named("added to the gradient, not decoupled", same,
        [](StepRule* r) { r->decoupled = false; });
  named(
      "decoupled, not added to the gradient",
      [](StepRun* run) { run->rule.decoupled = false; },
      [](StepRule* r) { r->decoupled = true; });
  named(
      "decoupled weight decay of 0.3",
      [](StepRun* run) { run->rule.weight_decay = 0; },
      [](StepRule* r) { r->weight_decay = 0.3; });
  named("without bias correction", same,
        [](StepRule* r) { r->bias_correction = false; });
  named(
      "bias correction, which its settings switch off",
      [](StepRun* run) { run->rule.bias_correction = false; },
      [](StepRule* r) { r->bias_correction = true; });
  named("betas that are exchanged", same,
        [](StepRule* r) { std::swap(r->beta1, r->beta2); });
  named("a learning rate of 0.02, 2 times", same,
        [](StepRule* r) { r->lr *= 2; });
  named("an epsilon of 1e-05 ", same, [](StepRule* r) { r->eps = 1e-5; });
}

TEST_F(StepCheck, AnotherGroupsWeightDecayIsNamed) {
  StepRun run;
  run.own_decay = {{"fc.bias", 0.02}};
  run.fault.rule = [](StepRule* rule) { rule->weight_decay = 0.1; };
  const CheckResult result =
      Named(run, "H", "a weight decay of 0.1, as other parameters have");
  EXPECT_EQ(result.culprits.front().fqn, "fc.bias");
  EXPECT_EQ(result.culprits.front().affected.count, 1);
}

TEST_F(StepCheck, CountsAndRootsAreNamed) {
  StepRun run;
  run.fault.count_by = 1;
  Named(run, "H", "bias correction for step 2 instead of 1");
  run.fault = {};
  run.fault.eps_inside_root = true;
  run.rule.eps = 1e-7;
  Named(run, "H", "an epsilon inside of the root");
}

TEST_F(StepCheck, ClippingIsNamed) {
  StepRun run;
  run.rule.clip_norm = 0.01;
  run.fault.no_clip = true;
  Named(run, "G", "gradients that are not clipped");
  run.fault = {};
  run.fault.clip_twice = true;
  Named(run, "G", "clipped twice");
  run.fault = {};
  run.fault.gradient = 0.5;
  const CheckResult other = Named(run, "G", "as for a norm of 0.0");
  EXPECT_THAT(other.culprits.front().classes.front().evidence,
              HasSubstr("the reported norm of"));
  run.rule.clip_norm.reset();
  Named(run, "K", "gradients times 0.5");
}

TEST_F(StepCheck, SgdIsNamed) {
  StepRun run = Sgd();
  run.fault.iteration = 1;
  run.fault.gradient = 3;
  Named(run, "K", "gradients times 3");
  run.fault = {};
  run.fault.rule = [](StepRule* rule) { rule->lr = 0.03; };
  Named(run, "H", "a learning rate of 0.03, 3 times");
  run.fault = {};
  run.fault.iteration = 2;
  run.fault.rule = [](StepRule* rule) { rule->weight_decay = 0; };
  Named(run, "H", "without weight decay");
}

TEST_F(StepCheck, SaysWhichRanksAreWrong) {
  StepRun run;
  run.mesh = {{"tp", 4}};
  run.fault.ranks = {2};
  run.fault.rule = [](StepRule* rule) { rule->weight_decay = 0; };
  const CheckResult one = Named(run, "H", "on rank 2, while ranks");
  EXPECT_EQ(one.culprits.front().ranks, std::vector<int>{2});
  EXPECT_THAT(one.culprits.front().hints.front(),
              HasSubstr("right: the count of steps, exp_avg, exp_avg_sq"));
  run.fault.ranks.clear();
  Named(run, "H", "on all 4 ranks that have it");
}

TEST_F(StepCheck, ASkippedStepChangesNothing) {
  StepRun run;
  run.said_skipped = {1};
  // Counts go on in what writes this run: that one is wrong is seen.
  const CheckResult counted = Alone(run);
  ASSERT_EQ(counted.culprits.size(), 1u);
  EXPECT_THAT(counted.culprits[0].hints.at(0),
              HasSubstr("the step was skipped, or there was no gradient, "
                        "and nothing may change"));
  run.fault.iteration = 1;
  run.fault.keep_count = true;
  run.iterations = 2;
  EXPECT_EQ(Alone(run).verdict, Verdict::kWithin);
  run.change = [](const RecordSpec& spec, const Occurrence& at,
                  std::vector<float>* values) {
    if (spec.fqn == "fc.bias" && spec.role == Role::kParamUpdated &&
        at.iteration == 1) {
      values->front() += 1e-6f;
    }
  };
  const CheckResult changed = Alone(run);
  ASSERT_EQ(changed.culprits.size(), 1u);
  EXPECT_EQ(changed.culprits[0].fqn, "fc.bias");
}

TEST_F(StepCheck, AParameterWithoutAGradientIsLeftAlone) {
  StepRun run;
  run.without_gradient = {"fc.bias"};
  EXPECT_EQ(Alone(run).verdict, Verdict::kWithin);
  EXPECT_EQ(Against(run, run).verdict, Verdict::kWithin);
  StepRun sgd = run;
  sgd.kind = "SGD";
  sgd.rule = StepRule{.algorithm = StepAlgorithm::kSgd,
                      .lr = 1e-2,
                      .weight_decay = 0.1,
                      .momentum = 0.9};
  EXPECT_EQ(Alone(sgd).verdict, Verdict::kWithin);

  // What weight decay or momentum would do to it is a fault.
  for (StepRun* wrong : {&run, &sgd}) {
    wrong->change = [](const RecordSpec& spec, const Occurrence& at,
                       std::vector<float>* values) {
      if (spec.fqn != "fc.bias" || spec.role != Role::kParamUpdated) return;
      if (at.iteration == 2) values->front() *= 0.999f;
    };
    const CheckResult moved = Alone(*wrong);
    ASSERT_EQ(moved.culprits.size(), 1u);
    EXPECT_EQ(moved.culprits[0].fqn, "fc.bias");
    EXPECT_THAT(moved.culprits[0].hints.at(0),
                HasSubstr("there was no gradient, and nothing may change"));
  }
}

TEST_F(StepCheck, OfAnUnknownAlgorithmNothingIsExpectedWithoutAGradient) {
  StepRun run;
  run.kind = "Mine";
  run.without_gradient = {"fc.bias"};
  run.change = [](const RecordSpec& spec, const Occurrence& at,
                  std::vector<float>* values) {
    if (spec.fqn != "fc.bias" || spec.role != Role::kParamUpdated) return;
    if (at.iteration == 2) values->front() *= 0.999f;
  };
  const CheckResult result = Alone(run);
  EXPECT_TRUE(result.culprits.empty());
  // What is held twice was compared, and the norm was made again.
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
}

TEST_F(StepCheck, WhatIsNotKnownIsSaidAndNoFinding) {
  const auto reason = [&](const StepRun& run) {
    const CheckResult result = Against(run, run);
    EXPECT_TRUE(result.culprits.empty());
    StepRun other = run;
    other.order = StepOrder::kApex;
    return ReasonWords(
        Find(Against(run, other), "fc.weight", Role::kParamUpdated).reason);
  };
  StepRun run;
  run.more = R"(, "trust_ratio": 2)";
  EXPECT_THAT(reason(run), HasSubstr("what trust_ratio does is not known"));
  run = {};
  run.kind = "Lion";
  EXPECT_THAT(reason(run), HasSubstr("the algorithm Lion is not known"));
  run = {};
  run.omit = [](int, const RecordSpec& spec, const Occurrence&) {
    return spec.role == Role::kGradNorm;
  };
  run.rule.clip_norm = 0.01;
  run.omit = [](int, const RecordSpec& spec, const Occurrence&) {
    return spec.arg == "exp_avg_sq";
  };
  EXPECT_THAT(reason(run), HasSubstr("exp_avg_sq is not recorded"));
  run.omit = [](int, const RecordSpec& spec, const Occurrence&) {
    return spec.arg == "step";
  };
  EXPECT_THAT(reason(run), HasSubstr("step is not recorded"));
}

TEST_F(StepCheck, WithoutTheNormThatClipsGradientsAreNotJudged) {
  StepRun run;
  run.rule.clip_norm = 0.01;
  run.fault.no_clip = true;
  run.omit = [](int, const RecordSpec& spec, const Occurrence&) {
    return spec.role == Role::kGradNorm;
  };
  const CheckResult result = Alone(run);
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_EQ(Find(result, "fc.weight", Role::kOptimState, "exp_avg").legs.size(),
            0u);
}

// A rank whose gradient is not there cannot say what its moments must be.
TEST_F(StepCheck, WhatARankDoesNotHoldIsNotJudged) {
  StepRun run;
  run.omit = [](int rank, const RecordSpec& spec, const Occurrence&) {
    return (rank == 1 && spec.role == Role::kGradReduced) ||
           spec.role == Role::kGradNorm;
  };
  run.fault.gradient = 2;
  run.fault.ranks = {1};
  EXPECT_TRUE(Alone(run).culprits.empty());
  run.fault.ranks = {0};
  EXPECT_EQ(Alone(run).culprits.size(), 1u);
}

// A gradient that is whole, state of which each rank has a half.
TEST_F(StepCheck, StateMayBeCutOtherwiseThanGradients) {
  StepRun run = WithMaster();
  run.mesh = {{"dp", 2}, {"tp", 2}};
  run.sharded_state = true;
  const CheckResult right = Alone(run);
  EXPECT_EQ(right.verdict, Verdict::kWithin) << right.reason;
  EXPECT_THAT(right.reason, HasSubstr("steps (6 of parameters)"));
  // Rank 3 alone has the last quarter of it.
  run.omit = [](int rank, const RecordSpec& spec, const Occurrence&) {
    return rank == 3 && spec.arg == "exp_avg_sq";
  };
  EXPECT_THAT(Alone(run).reason, HasSubstr("steps (0 of parameters)"));
  run.omit = nullptr;
  run.fault.ranks = {3};
  run.fault.rule = [](StepRule* rule) { rule->eps = 1e-4; };
  const CheckResult wrong = Alone(run);
  ASSERT_FALSE(wrong.culprits.empty());
  EXPECT_THAT(RenderJson(wrong), HasSubstr("on rank 3, while ranks"));
}

// A grafted run starts each step from the reference's weights.
TEST_F(StepCheck, GraftedWeightsAreWhatAStepStartsFrom) {
  StepRun candidate;
  candidate.omit = [](int, const RecordSpec& spec, const Occurrence& at) {
    return at.iteration == 0 &&
           (spec.role == Role::kParam || spec.role == Role::kParamUpdated);
  };
  const auto judged = [&] {
    const CheckResult result = Against(StepRun(), candidate);
    const auto& legs = Find(result, "fc.weight", Role::kParamUpdated).legs;
    return !legs.empty() && legs.front().Find(Statistic::kStep) != nullptr;
  };
  EXPECT_FALSE(judged());
  candidate.grafted = true;
  EXPECT_TRUE(judged());
  // Alone, what was put in place is not known.
  candidate.omit = nullptr;
  const CheckResult alone = Alone(candidate);
  EXPECT_TRUE(Find(alone, "fc.weight", Role::kParamUpdated).legs.empty());
}

// What is recorded right after the step is judged, not what came of it later.
TEST_F(StepCheck, AValueRightAfterTheStepStandsForTheParameter) {
  StepRun run;
  run.right_after = true;
  run.change = [](const RecordSpec& spec, const Occurrence&,
                  std::vector<float>* values) {
    if (spec.role != Role::kParamUpdated) return;
    for (float& value : *values) value = std::fmin(value, 0.0f);
  };
  EXPECT_EQ(Alone(run).verdict, Verdict::kWithin);
  run.right_after = false;
  EXPECT_EQ(Alone(run).verdict, Verdict::kDiverged);
}

// The norm of a step that leaves out, or counts twice, what some ranks have.
TEST_F(StepCheck, AWrongNormIsExplainedByContributions) {
  StepRun run;
  run.iterations = 1;
  run.norm_weight = {{"fc.bias", 0.0}};
  const auto evidence = [&] {
    const CheckResult result = Alone(run);
    EXPECT_FALSE(result.culprits.empty());
    if (result.culprits.empty()) return std::string();
    const Diagnosis& diagnosis = result.culprits.front().classes.at(0);
    EXPECT_EQ(diagnosis.bug_class, BugClass::kGradientNorm);
    return diagnosis.evidence;
  };
  EXPECT_THAT(evidence(),
              HasSubstr("it is that with fc.bias (1 parameter) left out"));
  run.norm_weight = {{"fc.weight", 2.0}};
  EXPECT_THAT(evidence(), HasSubstr("fc.weight (1 parameter) counted 2 times"));
  run.norm_weight = {{"fc.weight", 1.7}};
  EXPECT_EQ(evidence().find("it is that"), std::string::npos);
}

// State that is made by the first step is zero before it; later it is unknown.
TEST_F(StepCheck, StateThatIsNotRecordedBeforeIsKnownOnlyInTheFirstStep) {
  StepRun run;
  run.omit = [](int, const RecordSpec& spec, const Occurrence& at) {
    return spec.role == Role::kOptimState &&
           (at.iteration == 0 || at.pass == Pass::kForward);
  };
  run.iterations = 2;
  const CheckResult result = Alone(run);
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_EQ(Find(result, "fc.bias", Role::kOptimState, "exp_avg").legs.size(),
            0u);
  // What the step before left is what this one finds.
  run.omit = [](int, const RecordSpec& spec, const Occurrence& at) {
    return spec.role == Role::kOptimState && at.pass == Pass::kForward;
  };
  const CheckResult chained = Alone(run);
  EXPECT_TRUE(chained.culprits.empty());
  EXPECT_EQ(Find(chained, "fc.bias", Role::kOptimState, "exp_avg").legs.size(),
            1u);
}

}  // namespace
}  // namespace ttrace::step_check_test
