// Runs of which each module was given the reference's values, too.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "src/check/testing/check_fixture.h"
#include "src/judge/origin_words.h"
#include "src/judge/reason_words.h"
#include "src/report/render.h"

namespace ttrace::isolated_runs_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class IsolatedCheckTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    reference_.legs.push_back("isolated.noise.1");
    reference_.legs.push_back("isolated.noise.2");
    candidate_.legs = {"real", "isolated"};
    candidate_.notes = Grafted();
  }

  // Without these notes the candidate was isolated from its own values.
  static std::vector<std::pair<std::string, std::string>> Grafted() {
    return {{"graft", R"({"what":"weights"})"},
            {"graft", R"({"what":"data"})"}};
  }

  void AddNotes(std::vector<std::pair<std::string, std::string>> notes) {
    candidate_.notes.insert(candidate_.notes.end(), notes.begin(), notes.end());
  }

  // Scales one tensor of the candidate in the legs that `which` accepts.
  void Break(const std::string& fqn, Role role,
             const std::function<bool(const Leg&)>& which) {
    candidate_.fault = [=](const SyntheticTensor& t, int, const Leg& leg,
                           int64_t index, float* value) {
      if (t.fqn == fqn && t.role == role && which(leg) && index % 3 == 0) {
        *value *= 1.25f;
      }
    };
  }
  // Noise of whole runs in this tensor is as large as `share` of its values.
  void Drown(const std::string& fqn, Role role, float share) {
    reference_.fault = [=](const SyntheticTensor& t, int, const Leg& leg,
                           int64_t index, float* value) {
      if (t.fqn == fqn && t.role == role && leg.name().starts_with("noise")) {
        *value *= index % 2 == 0 ? 1 + share : 1 - share;
      }
    };
  }
  static bool Everywhere(const Leg&) { return true; }
  static bool OnlyAlone(const Leg& leg) { return leg == "isolated"; }
  static bool OnlyEndToEnd(const Leg& leg) { return leg == "real"; }
};

TEST_F(IsolatedCheckTest, ACleanRunIsJudgedAloneAsWell) {
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_TRUE(result.isolation.ran);
  EXPECT_EQ(result.isolation.judged, 9);
  EXPECT_EQ(result.isolation.of, 9);
  EXPECT_THAT(Notes(result),
              Contains(HasSubstr("9 of 9 module tensors judged in isolation")));
  const TensorJudgement& t = Find(result, "fc", Role::kOutput);
  ASSERT_EQ(t.legs.size(), 2u);
  EXPECT_EQ(t.legs[1].leg, "isolated");
  EXPECT_THAT(OriginWords(t.legs[1]), HasSubstr("one module deep"));
  EXPECT_THAT(RenderJson(result), HasSubstr("\"isolated\":{\"verdict\""));
}

// Noise, stochastic depth: every topology draws others.
TEST_F(IsolatedCheckTest, WhatIsComputedWithOtherRandomNumbersIsNotJudged) {
  const auto draw = [](SyntheticRun* run, const std::string& module,
                       const std::string& numbers) {
    run->notes.push_back({"random_draws", R"({"iteration":0,"fqn":")" + module +
                                              R"(","draws":["0:)" + numbers +
                                              R"("]})"});
  };
  const auto of = [](const CheckResult& result) {
    return std::count_if(
        result.notes.begin(), result.notes.end(),
        [](const RunNote& n) { return n.kind == NoteKind::kUnlikeDraws; });
  };
  reference_.extra = candidate_.extra = {
      {"loss", Role::kLoss, "value", Pass::kForward, {1, 1}, {}, -1, {}}};
  Break("fc", Role::kOutput, Everywhere);
  draw(&reference_, "fc", "aa");
  draw(&candidate_, "fc", "aa");
  CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_EQ(of(result), 0);
  // The reference drew them of one micro-batch more.
  draw(&reference_, "fc", "bb");
  result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
  EXPECT_THAT(result.reason, HasSubstr("draws random numbers"));
  EXPECT_THAT(result.reason, HasSubstr("(fc)"));
  EXPECT_EQ(Find(result, "fc", Role::kOutput).reason.kind,
            ReasonKind::kUnlikeDraws);
  EXPECT_FALSE(Find(result, "fc", Role::kOutput).isolated.has_value());
  EXPECT_FALSE(Find(result, "fc.weight", Role::kGradReduced).isolated);
  EXPECT_FALSE(Find(result, "loss", Role::kLoss).isolated);
  // The model hands on what fc drew; what came before is judged.
  Break("", Role::kOutput, Everywhere);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kInconclusive);
  Break("fc", Role::kInput, OnlyEndToEnd);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
  // Numbers that change nothing prevent nothing.
  candidate_.fault = nullptr;
  result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_EQ(of(result), 0);
}

TEST_F(IsolatedCheckTest, WhatArrivesFromAModuleThatDrawsIsNotJudged) {
  candidate_.notes.push_back(
      {"random_draws", R"({"iteration":0,"fqn":"","draws":["0:aa"]})"});
  Break("fc", Role::kInput, Everywhere);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kInconclusive);
  Break("fc", Role::kOutput, Everywhere);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
}

// What was made with drawn numbers goes on in what isolation leaves as it is.
class LeftValuesTest : public IsolatedCheckTest {
 protected:
  void SetUp() override {
    IsolatedCheckTest::SetUp();
    AddNotes(
        {{"random_draws", R"({"iteration":0,"fqn":"fc","draws":["0:aa"]})"}});
    const Shape rows = {SyntheticRun::kRows, 16};
    const auto tensor = [&](Role role, const char* arg, Pass pass) {
      return SyntheticTensor{"pick", role, arg, pass, rows, {}, 0, {}};
    };
    SyntheticTensor ids = tensor(Role::kInput, "ids", Pass::kForward);
    ids.dtype = DType::kI64;
    reference_.extra =
        candidate_.extra = {ids, tensor(Role::kInput, "x", Pass::kForward),
                            tensor(Role::kOutput, "0", Pass::kForward),
                            tensor(Role::kGradOutput, "0", Pass::kBackward),
                            tensor(Role::kGradInput, "x", Pass::kBackward)};
  }

  // Other values of these tensors of the module.
  Verdict WithOther(const std::set<std::pair<Role, std::string>>& which) {
    candidate_.fault = [=](const SyntheticTensor& t, int, const Leg&,
                           int64_t index, float* value) {
      if (t.fqn != "pick" || !which.contains({t.role, t.arg})) return;
      *value = *value * (index % 3 == 0 ? 1.25f : 1.0f) +
               (t.arg == "ids" ? 7.0f : 0.0f);
    };
    return CheckAgain().verdict;
  }

  void NotIsolated(const std::string& role, const std::string& arg) {
    AddNotes({{"not_isolated",
               R"({"leg":"isolated","iteration":0,"fqn":"pick","role":")" +
                   role + R"(","arg":")" + arg + R"(","reason":"why"})"}});
  }
};

TEST_F(LeftValuesTest, Integers) {
  const std::pair<Role, std::string> ids = {Role::kInput, "ids"};
  const std::pair<Role, std::string> output = {Role::kOutput, "0"};
  EXPECT_EQ(WithOther({ids, output}), Verdict::kInconclusive);
  EXPECT_EQ(WithOther({output}), Verdict::kDiverged);
}

TEST_F(LeftValuesTest, InputsThatWereNotReplaced) {
  const std::pair<Role, std::string> input = {Role::kInput, "x"};
  const std::pair<Role, std::string> gradient = {Role::kGradInput, "x"};
  EXPECT_EQ(WithOther({input, gradient}), Verdict::kDiverged);
  NotIsolated("input", "x");
  EXPECT_EQ(WithOther({input, gradient}), Verdict::kInconclusive);
}

TEST_F(LeftValuesTest, GradientsThatWereNotReplaced) {
  const std::pair<Role, std::string> arrives = {Role::kGradOutput, "0"};
  const std::pair<Role, std::string> leaves = {Role::kGradInput, "x"};
  NotIsolated("grad_output", "0");
  EXPECT_EQ(WithOther({arrives, leaves}), Verdict::kInconclusive);
  // The forward is as it was.
  EXPECT_EQ(WithOther({arrives, {Role::kOutput, "0"}}), Verdict::kDiverged);
}

// A module may hold others in a list, which nobody calls.
TEST_F(IsolatedCheckTest, WhatIsDrawnElsewhereDoesNotReachAModulesInputs) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    for (const std::string fqn : {"block", "block.list.inner"}) {
      for (const Role role : {Role::kInput, Role::kOutput}) {
        run->extra.push_back({fqn,
                              role,
                              "0",
                              Pass::kForward,
                              {SyntheticRun::kRows, 16},
                              {},
                              0,
                              {}});
      }
    }
  }
  const auto inner_input_is_judged = [&](const std::string& drawing) {
    candidate_.notes = Grafted();
    AddNotes({{"random_draws", R"({"iteration":0,"fqn":")" + drawing +
                                   R"(","draws":["0:aa"]})"}});
    return Find(CheckAgain(), "block.list.inner", Role::kInput)
        .isolated.has_value();
  };
  EXPECT_TRUE(inner_input_is_judged("fc"));
  EXPECT_FALSE(inner_input_is_judged("block"));
  EXPECT_FALSE(inner_input_is_judged("block.list.other"));
}

TEST_F(IsolatedCheckTest, WhatCameBeforeADrawIsJudged) {
  reference_.extra = candidate_.extra = {{"later",
                                          Role::kOutput,
                                          "0",
                                          Pass::kForward,
                                          {SyntheticRun::kRows, 16},
                                          {},
                                          0,
                                          {}}};
  AddNotes(
      {{"random_draws", R"({"iteration":0,"fqn":"later","draws":["0:aa"]})"}});
  Break("fc", Role::kOutput, Everywhere);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
  Break("later", Role::kOutput, Everywhere);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kInconclusive);
}

// A module may choose by them what it returns.
TEST_F(IsolatedCheckTest, AShapeThatIsDrawnIsNotJudged) {
  const SyntheticTensor chosen = {
      "fc", Role::kOutput, "1", Pass::kForward, {4, 16}, {}, -1, {}};
  reference_.extra = candidate_.extra = {chosen};
  candidate_.extra[0].global = {5, 16};
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
  AddNotes(
      {{"random_draws", R"({"iteration":0,"fqn":"fc","draws":["0:aa"]})"}});
  const CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
  EXPECT_TRUE(result.culprits.empty());
}

// Rows that tokens look up are sums over tokens, which low precision rounds at
// each of them.
TEST_F(IsolatedCheckTest, TheGradientOfATableIsJudgedByWhatTheReferenceIsOff) {
  reference_.dtype = candidate_.dtype = DType::kBF16;
  reference_.legs.push_back("fp32");
  const int64_t rows = SyntheticRun::kRows;
  const std::vector<SyntheticTensor> table = {
      {"table",
       Role::kInput,
       "ids",
       Pass::kForward,
       {rows, 1},
       {},
       0,
       {},
       DType::kI64},
      {"table.weight",
       Role::kGradLocal,
       "",
       Pass::kBackward,
       {16, 32},
       {},
       -1,
       {}},
      // What it gives is of floats.
      {"table", Role::kOutput, "0", Pass::kForward, {rows, 32}, {}, 0, {}}};
  reference_.extra = candidate_.extra = table;
  reference_.fault = [](const SyntheticTensor& t, int, const Leg& leg,
                        int64_t index, float* value) {
    if (t.fqn == "table.weight" && leg == "fp32") {
      *value *= index % 2 == 0 ? 1.02f : 0.98f;
    }
  };
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.fqn == "table.weight") *value *= index % 3 == 0 ? 1.04f : 0.98f;
  };
  const auto isolated = [&] {
    const CheckResult result = CheckAgain();
    for (const LegJudgement& leg :
         Find(result, "table.weight", Role::kGradLocal).legs) {
      if (leg.leg == "isolated") return leg;
    }
    return LegJudgement();
  };
  LegJudgement leg = isolated();
  EXPECT_TRUE(leg.tests.at(0).expected.lookup_gradient);
  EXPECT_LE(leg.headroom, 1);
  // Of a matrix that is given values every kernel sums in fp32.
  reference_.extra[0].dtype = candidate_.extra[0].dtype = DType::kBF16;
  leg = isolated();
  EXPECT_FALSE(leg.tests.at(0).expected.lookup_gradient);
  EXPECT_GT(leg.headroom, 1);
}

TEST_F(IsolatedCheckTest, ARunIsolatedFromItsOwnValuesIsNoTest) {
  Break("fc", Role::kOutput, OnlyAlone);
  candidate_.notes = {{"graft", R"({"what":"weights"})"}};
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_FALSE(result.isolation.ran);
  EXPECT_THAT(Notes(result), Contains(HasSubstr("record it with --graft")));
}

TEST_F(IsolatedCheckTest, WithoutAnIsolatedLegNothingIsSaidOfIt) {
  candidate_.legs = {"real"};
  const CheckResult result = Check();
  EXPECT_FALSE(result.isolation.ran);
  EXPECT_THAT(Notes(result), Not(Contains(HasSubstr("isolation"))));
}

TEST_F(IsolatedCheckTest, BothWaysNameTheSamePlace) {
  Break("fc", Role::kGradInput, Everywhere);
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  ASSERT_EQ(result.culprits.size(), 1u);
  EXPECT_THAT(result.culprits[0].found_by,
              ElementsAre("dataflow", "isolation"));
  EXPECT_EQ(result.isolation.faulty, 1);
}

TEST_F(IsolatedCheckTest, AFaultThatOnlyIsolationSeesDivergesTheRun) {
  Drown("fc", Role::kOutput, 0.015f);
  Break("fc", Role::kOutput, OnlyAlone);
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().fqn, "fc");
  EXPECT_THAT(result.culprits.front().found_by, ElementsAre("isolation"));
  EXPECT_EQ(result.isolation.hidden, 1);
  // What happened end to end is not touched by it.
  EXPECT_EQ(Find(result, "fc", Role::kOutput).verdict, TensorVerdict::kWithin);
}

// The run itself is known to far less than what is off there.
TEST_F(IsolatedCheckTest, WhatTheRunCouldNotHideIsNoFaultOfIt) {
  Break("fc", Role::kOutput, OnlyAlone);
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  const TensorJudgement& t = Find(result, "fc", Role::kOutput);
  EXPECT_FALSE(t.judged_isolated());
  EXPECT_THAT(ReasonWords(t.isolated->reason),
              HasSubstr("by more than the run itself can be"));
}

TEST_F(IsolatedCheckTest, AFaultThatOnlyIsolationSeesIsExplainedByThatLeg) {
  Drown("fc", Role::kOutput, 0.5f);
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg& leg, int64_t,
                        float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput && OnlyAlone(leg)) *value *= 3;
  };
  const CheckResult result = Check();
  ASSERT_FALSE(result.culprits.empty());
  ASSERT_THAT(Letters(result.culprits[0]), ElementsAre("K"));
  EXPECT_NEAR(result.culprits[0].classes[0].value, 3, 1e-5);
}

// A missing factor hits parameters of any name.
TEST_F(IsolatedCheckTest, OneFactorOfTwoParametersIsOneFaultAndSaidToBe) {
  reference_.fault = [](const SyntheticTensor& t, int, const Leg& leg,
                        int64_t index, float* value) {
    if (t.role == Role::kGradLocal && leg.name().starts_with("noise")) {
      *value *= index % 2 == 0 ? 1.5f : 0.5f;
    }
  };
  for (const std::string fqn : {"a.weight", "b.bias"}) {
    reference_.extra.push_back(
        {fqn, Role::kGradLocal, "", Pass::kBackward, {16, 16}, {}, -1, {}});
  }
  candidate_.extra = reference_.extra;
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg& leg, int64_t,
                        float* value) {
    if ((t.fqn == "a.weight" || t.fqn == "b.bias") && OnlyAlone(leg)) {
      *value *= 3;
    }
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.culprits.size(), 1u);
  EXPECT_EQ(result.culprits[0].affected.count, 2);
  EXPECT_THAT(Notes(result),
              Contains(HasSubstr("1 more faulty place has the explanation of "
                                 "another one")));
}

// What arrives at a module nothing replaces: both ways may be right.
TEST_F(IsolatedCheckTest, WhatArrivesWrongOnlyEndToEndIsADisagreement) {
  Break("fc", Role::kInput, OnlyEndToEnd);
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_THAT(result.culprits.front().found_by, ElementsAre("dataflow"));
  EXPECT_THAT(result.culprits.front().disagreement,
              HasSubstr("finds it clean"));
  EXPECT_EQ(result.isolation.disputed, 1);
}

TEST_F(IsolatedCheckTest, AModuleThatIsCleanAloneLeavesTheVerdictOpen) {
  Break("fc", Role::kOutput, OnlyEndToEnd);
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_THAT(result.reason,
              HasSubstr("fc output 0, iteration 0, is out of bounds, but "
                        "isolation finds it clean"));
  EXPECT_TRUE(result.culprits.empty());
  ASSERT_EQ(result.contested.size(), 1u);
  EXPECT_EQ(result.contested[0].fqn, "fc");
  EXPECT_THAT(RenderTerminal(result), HasSubstr("OPEN     fc output 0, "));
  EXPECT_THAT(RenderJson(result), HasSubstr("\"contested\": [\n    {"));
}

TEST_F(IsolatedCheckTest, AModuleThatWasNotIsolatedIsNotFlagged) {
  Break("fc", Role::kOutput, OnlyAlone);
  AddNotes({{"not_isolated",
             R"({"leg":"isolated","iteration":0,"fqn":"fc","role":"input",)"
             R"("arg":"x","reason":"the reference has no such tensor"})"}});
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  // Neither its output nor what it computes backward.
  EXPECT_EQ(result.isolation.judged, 5);
  EXPECT_THAT(ReasonWords(Find(result, "fc", Role::kOutput).isolated->reason),
              HasSubstr("input x of fc was not replaced"));
  EXPECT_THAT(Notes(result), Contains(HasSubstr("could not be isolated")));
}

// No isolated leg makes a step of its own.
TEST_F(IsolatedCheckTest, OnlyWhatModulesComputeIsJudgedAlone) {
  reference_.extra = candidate_.extra = {{"norm.weight",
                                          Role::kParamUpdated,
                                          "",
                                          Pass::kOptimizer,
                                          {1, 32},
                                          {},
                                          -1,
                                          {}}};
  Break("norm.weight", Role::kParamUpdated, OnlyAlone);
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_FALSE(Find(result, "norm.weight", Role::kParamUpdated).isolated);
}

TEST_F(IsolatedCheckTest, WhatTheIsolatedLegDidNotReachIsNotJudgedAlone) {
  Break("fc", Role::kOutput, OnlyAlone);
  candidate_.omit = [](const SyntheticTensor& t, int rank, const Leg& leg,
                       int) {
    return t.fqn == "fc" && t.role == Role::kOutput && rank == 1 &&
           leg == "isolated";
  };
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_FALSE(Find(result, "fc", Role::kOutput).isolated);
}

TEST_F(IsolatedCheckTest, OnlyTheNamedIterationAndLegAreNotIsolated) {
  Drown("fc", Role::kOutput, 0.015f);
  Break("fc", Role::kOutput, OnlyAlone);
  AddNotes(
      {{"not_isolated", R"({"leg":"isolated","iteration":1,"fqn":"fc",)"
                        R"("role":"input","arg":"x","reason":"none"})"},
       {"not_isolated", R"({"leg":"fp32.isolated","iteration":0,"fqn":"fc",)"
                        R"("role":"input","arg":"x","reason":"none"})"},
       {"not_isolated", R"({"leg":"isolated","iteration":0,"fqn":"fc",)"
                        R"("role":"nonsense","arg":"x","reason":"none"})"}});
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
}

TEST_F(IsolatedCheckTest, IsolationChecksWhatNoiseMakesUncheckableEndToEnd) {
  Drown("fc", Role::kOutput, 0.5f);
  CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_EQ(Find(result, "fc", Role::kOutput).verdict,
            TensorVerdict::kNotCheckable);
  EXPECT_EQ(result.isolation.rescued, 1);
  EXPECT_EQ(result.not_checkable, 0);
  std::filesystem::remove_all(Path("cand"));
  Break("fc", Role::kOutput, Everywhere);
  result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().fqn, "fc");
  EXPECT_THAT(result.culprits.front().disagreement,
              HasSubstr("cannot be judged"));
}

TEST_F(IsolatedCheckTest, WithoutNoiseOneModuleDeepTheWiderOneServes) {
  reference_.legs = {"real", "noise.1", "noise.2", "noise.3"};
  const CheckResult result = Check();
  EXPECT_EQ(result.isolation.judged, 9);
  EXPECT_THAT(OriginWords(Find(result, "fc", Role::kOutput).legs.at(1)),
              HasSubstr("end to end"));
}

TEST_F(IsolatedCheckTest, CopiesThatDifferOnEqualInputsAreTheModulesFault) {
  for (const bool alone : {true, false}) {
    candidate_.noise = 0;
    candidate_.fault = [=](const SyntheticTensor& t, int rank, const Leg& leg,
                           int64_t index, float* value) {
      if (t.fqn == "fc" && t.role == Role::kGradInput && rank == 1 &&
          index == 5 && (alone || leg == "real")) {
        *value = std::nextafter(*value, 2.0f);
      }
    };
    const CheckResult result = Check();
    ASSERT_EQ(result.verdict, Verdict::kDiverged);
    EXPECT_EQ(Find(result, "fc", Role::kGradInput).out_isolated(), alone);
    EXPECT_EQ(result.isolation.faulty, alone ? 1 : 0);
    std::filesystem::remove_all(Path("cand"));
  }
}

TEST_F(IsolatedCheckTest, OtherPrecisionsAreNoYardstickForIsolation) {
  // A reference of its own leg in fp32 gives the candidate's fp32 leg values.
  candidate_.legs = {"real", "fp32", "isolated", "fp32.isolated"};
  const CheckResult result = Check();
  const TensorJudgement& t = Find(result, "fc", Role::kOutput);
  std::vector<Leg> legs;
  for (const LegJudgement& leg : t.legs) legs.push_back(leg.leg);
  EXPECT_THAT(legs, ElementsAre("real", "fp32", "isolated", "fp32.isolated"));
  EXPECT_THAT(OriginWords(t.legs[3]), HasSubstr("one module deep"));
}

// Sums over tokens inside an operation, which no noise leg stirs up.
TEST_F(IsolatedCheckTest, ABiasGradientMayBeAsFarOffAsTheReferenceIsFromFp32) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->dtype = DType::kBF16;
    run->extra = {{"fc.bias",
                   Role::kGradReduced,
                   "",
                   Pass::kBackward,
                   {256},
                   {},
                   -1,
                   {}}};
  }
  reference_.fault = [](const SyntheticTensor& t, int, const Leg& leg,
                        int64_t index, float* value) {
    if (t.fqn == "fc.bias" && leg != "fp32") {
      *value *= index % 2 == 0 ? 1.06f : 0.94f;
    }
  };
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
  reference_.legs.push_back("fp32");
  const CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  const TensorJudgement& bias = Find(result, "fc.bias", Role::kGradReduced);
  EXPECT_EQ(bias.legs.at(1).Find(Statistic::kNorm)->expected.origin,
            Origin::kReferenceRounds);
}

}  // namespace
}  // namespace ttrace::isolated_runs_test
