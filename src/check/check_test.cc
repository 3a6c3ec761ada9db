#include "src/check/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "src/check/testing/check_fixture.h"
#include "src/report/render.h"

namespace ttrace::check_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(CheckTest, ACleanShardedRunIsWithinAndFullyCompared) {
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_EQ(result.coverage.compared, 10);
  EXPECT_EQ(result.reference.mesh, "1 process");
  EXPECT_EQ(result.candidate.mesh, "tp=2");
  EXPECT_EQ(result.coverage.reference_only + result.coverage.candidate_only, 0);
}

// A bit that flipped once, or a race. What a run does not repeat is no excuse:
// only the reference's own replay is.
TEST_F(CheckTest, WhatTheCandidateDoesNotRepeatIsADivergence) {
  candidate_.legs = {"real", "replay"};
  const auto broken_in = [&](const std::vector<Leg>& legs) {
    candidate_.fault = [legs](const SyntheticTensor& t, int rank,
                              const Leg& leg, int64_t index, float* value) {
      const auto hit = std::find(legs.begin(), legs.end(), leg);
      if (t.fqn != "fc" || t.role != Role::kOutput || rank != 1 ||
          hit == legs.end()) {
        return;
      }
      // Another error in each leg.
      *value *= (index + (hit - legs.begin())) % 3 == 0 ? 1.1f : 1.0f;
    };
    std::filesystem::remove_all(Path("cand"));
    return Check();
  };
  const CheckResult once = broken_in({"real"});
  ASSERT_EQ(once.verdict, Verdict::kDiverged) << once.reason;
  EXPECT_EQ(once.culprits.front().fqn, "fc");
  EXPECT_THAT(once.culprits.front().ranks, ElementsAre(1));
  const auto said = [](const CheckResult& of) {
    return std::count_if(
        of.notes.begin(), of.notes.end(),
        [](const RunNote& n) { return n.kind == NoteKind::kNotRepeatable; });
  };
  // A right run whose replay was not; one that is never the same.
  for (const auto& legs :
       std::vector<std::vector<Leg>>{{"replay"}, {"real", "replay"}}) {
    const CheckResult result = broken_in(legs);
    ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    EXPECT_EQ(result.culprits.front().fqn, "fc");
    EXPECT_THAT(Letters(result.culprits.front()), Contains("I"));
    EXPECT_EQ(said(result), 1);
  }
  candidate_.noise = 0;  // another in each leg
  EXPECT_EQ(said(broken_in({})), 0);
}

// The norm of the difference is within what the norm may differ by.
TEST_F(CheckTest, AnElementThatIsNotTheSameInAReplayIsSaidToBe) {
  candidate_.noise = 0;
  candidate_.legs = {"real", "replay"};
  const auto classes = [&](bool in_replay) {
    candidate_.fault = [=](const SyntheticTensor& t, int rank, const Leg& leg,
                           int64_t index, float* value) {
      if (t.fqn == "fc" && t.role == Role::kOutput && rank == 1 &&
          index == 13 && (in_replay || leg == "real")) {
        *value += 1.2e-6f;
      }
    };
    std::filesystem::remove_all(Path("cand"));
    const CheckResult result = Check();
    EXPECT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    return Letters(result.culprits.front());
  };
  EXPECT_THAT(classes(false), Contains("I"));
  EXPECT_THAT(classes(true), Not(Contains("I")));
}

TEST_F(CheckTest, OtherDataInAReplayIsNoRace) {
  candidate_.noise = 0;
  candidate_.legs = {"real", "replay"};
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg& leg, int64_t,
                        float* value) {
    if (t.fqn.empty() && t.role == Role::kInput && leg == "real") *value += 1;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_EQ(result.culprits.front().tensor.role, Role::kInput);
  EXPECT_THAT(Letters(result.culprits.front()), Not(Contains("I")));
}

// fc's input gradient is summed over tp. Its error is in what comes after it,
// and not in the forward pass.
TEST_F(CheckTest, BoundsOfLowPrecisionGrowWithTheRanksOfASum) {
  const auto growth = [&](Role role, int tp) {
    candidate_.mesh = {{"dp", 1}, {"tp", tp}};
    std::filesystem::remove_all(Path("cand"));
    std::filesystem::remove_all(Path("ref"));
    const CheckResult result = Check();
    return Find(result, "fc", role).legs.at(0).tests.at(0).expected.growth;
  };
  const auto grows = [&](DType dtype, Role role) {
    reference_.dtype = candidate_.dtype = dtype;
    return growth(role, 4) / growth(role, 2);
  };
  // 3.25 and 1 roundings instead of 2 and 1.
  EXPECT_NEAR(grows(DType::kBF16, Role::kGradInput), std::sqrt(4.25 / 3), 1e-6);
  EXPECT_EQ(grows(DType::kBF16, Role::kOutput), 1);
  EXPECT_EQ(grows(DType::kF32, Role::kGradInput), 1);
}

// A gradient that micro-batches are added to is rounded at each of them.
TEST_F(CheckTest, BoundsOfLowPrecisionGrowWithWhatAGradientCollects) {
  reference_.dtype = candidate_.dtype = DType::kBF16;
  candidate_.mesh = {{"dp", 2}, {"tp", 1}};
  const CheckResult result = Check();
  // Four micro-batches in the reference, two on each of two ranks: 3 + 1 + 1
  // partial sums.
  const double sums = std::sqrt(2 * std::numbers::ln2 / 9 * 5);
  const ttrace::Test& test =
      Find(result, "fc.weight", Role::kGradLocal).legs.at(0).tests.at(0);
  EXPECT_GE(test.bound, 2 * 0x1p-8 * sums);
  EXPECT_LT(test.bound, 2.5 * 0x1p-8 * sums);
  EXPECT_LT(Find(result, "fc", Role::kOutput).legs.at(0).bound, test.bound);
}

// What goes in and out is fp32: autocast.
TEST_F(CheckTest, AModuleMayRoundMoreInsideThanItsValuesShow) {
  const auto bound = [&] {
    return Find(CheckAgain(), "fc", Role::kOutput).legs.at(0).bound;
  };
  EXPECT_LT(bound(), 0x1p-16);
  reference_.notes = candidate_.notes = {
      {"precision_inside", R"({"fqn":"fc","dtype":"bfloat16"})"}};
  EXPECT_GT(bound(), 0x1p-10);
}

// The gradient of what fc makes of its weight: fc's code makes it, and a run of
// two ranks rounds two terms.
TEST_F(CheckTest, WhatCodeOfLowPrecisionHandsAModuleMayBeRoundedSo) {
  SyntheticTensor gradient = {
      "fc.part", Role::kGradOutput, "0", Pass::kBackward, {8, 16}, {}, -1, {}};
  gradient.placements = {{"tp", Partial{}}};
  const auto bound = [&](int tp) {
    candidate_.mesh = {{"dp", 1}, {"tp", tp}};
    return Find(CheckAgain(), "fc.part", Role::kGradOutput).legs.at(0).bound;
  };
  reference_.extra = candidate_.extra = {gradient};
  EXPECT_LT(bound(2), 0x1p-16);
  reference_.notes = candidate_.notes = {
      {"precision_inside", R"({"fqn":"fc","dtype":"bfloat16"})"}};
  EXPECT_EQ(bound(1), 0x1p-8 / 2);
  const double two_roundings = std::sqrt(2 * 2 * std::numbers::ln2 / 9);
  EXPECT_NEAR(bound(2), 2 * 0x1p-8 * two_roundings, 1e-12);
  // A module between them that may hand it on as it is.
  reference_.extra.front().fqn = candidate_.extra.front().fqn = "fc.parts.0";
  SyntheticTensor handed_on = gradient;
  handed_on.fqn = "fc.parts";
  reference_.extra.push_back(handed_on);
  candidate_.extra.push_back(handed_on);
  const auto inner = [&] {
    return Find(CheckAgain(), "fc.parts.0", Role::kGradOutput).legs.at(0).bound;
  };
  EXPECT_NEAR(inner(), 2 * 0x1p-8 * two_roundings, 1e-12);
  // Of another shape it made it, in fp32.
  reference_.extra.back().global = candidate_.extra.back().global = {16, 8};
  EXPECT_LT(inner(), 0x1p-16);
}

TEST_F(CheckTest, OneWrongElementIsFoundOnItsRank) {
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&,
                        int64_t index, float* value) {
    // Two thirds of what the norm of 128 elements allows.
    if (t.fqn == "fc" && t.role == Role::kOutput && rank == 1 && index == 13) {
      *value += 1.2e-6f;
    }
  };
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kDiverged);
  ASSERT_FALSE(result.culprits.empty());
  EXPECT_EQ(result.culprits.front().fqn, "fc");
  EXPECT_THAT(result.culprits.front().ranks, ElementsAre(1));
  for (const TensorJudgement& t : result.tensors) {
    if (!t.diverged()) continue;
    EXPECT_EQ(t.deciding()->deciding()->statistic, Statistic::kElement);
    EXPECT_LT(t.deciding()->err, t.deciding()->bound);
  }
}

TEST_F(CheckTest, AnEqualRunIsBitwiseEqual) {
  candidate_.noise = 0;
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  EXPECT_EQ(Check().verdict, Verdict::kBitwiseEqual);
}

TEST_F(CheckTest, AConstantFactorIsNamedWithTheMeshSizeItEquals) {
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kGradReduced) *value *= 2;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  const Culprit& first = result.culprits.front();
  EXPECT_EQ(first.fqn, "fc.weight");
  EXPECT_EQ(first.stage, Stage::kCommunication);
  ASSERT_THAT(Letters(first), ElementsAre("K"));
  EXPECT_NEAR(first.classes[0].value, 2, 1e-5);
  // dp and tp are both 2: the one the gradient is reduced over is named.
  EXPECT_THAT(Words(first.classes[0]), HasSubstr("dp = 2"));
}

TEST_F(CheckTest, CopiesWhoseSumIsTheReferenceAreAMissingSum) {
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&,
                        int64_t index, float* value) {
    if (t.fqn != "fc" || t.role != Role::kGradInput) return;
    const float part = index % 3 == 0 ? 0.75f : 0.375f;
    *value *= rank == 0 ? part : 1 - part;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  const Culprit& first = result.culprits.front();
  EXPECT_EQ(first.fqn, "fc");
  EXPECT_EQ(first.direction, Direction::kBackward);
  EXPECT_EQ(first.stage, Stage::kCommunication);
  EXPECT_THAT(Letters(first), ElementsAre("P", "R"));
  EXPECT_THAT(first.ranks, ElementsAre(0, 1));
}

TEST_F(CheckTest, CopiesThatDifferWithinTheBoundAreStillAFinding) {
  candidate_.noise = 0;
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&,
                        int64_t index, float* value) {
    if (t.fqn == "fc" && t.role == Role::kInput && rank == 1 && index == 5) {
      *value = std::nextafter(*value, 2.0f);
    }
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_THAT(Letters(result.culprits.front()), ElementsAre("R"));
  EXPECT_THAT(result.culprits.front().ranks, ElementsAre(0, 1));
}

// Grafting hides what a reader does wrong from everything but its own record.
TEST_F(CheckTest, RanksThatReadTheSameDataAreADivergence) {
  const SyntheticTensor tokens = {
      "data", Role::kData, "tokens", Pass::kForward, {8, 32}, {}, 0, {}};
  reference_.extra = candidate_.extra = {tokens};
  reference_.notes_rows = candidate_.notes_rows = true;
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  candidate_.noise = 0;
  candidate_.notes = {{"graft", R"({"what":"data"})"}};
  enum { kOwn, kAsRank0, kOneMicroBatch, kOthers };
  for (const int kind : {kOwn, kAsRank0, kOneMicroBatch, kOthers}) {
    candidate_.fault = [&](const SyntheticTensor& t, int rank, const Leg&,
                           int64_t index, float* value) {
      const bool second = index / 32 >= 4;  // of two micro-batches
      if (t.role == Role::kData && rank >= 2 && kind != kOwn &&
          (kind != kOneMicroBatch || second)) {
        *value =
            kind == kOthers ? -*value : SyntheticRun::Value(t, index - 2 * 32);
      }
    };
    std::filesystem::remove_all(Path("cand"));
    const CheckResult result = Check();
    const TensorJudgement& data = Find(result, "data", Role::kData);
    if (kind == kOwn || kind == kOthers) {
      EXPECT_EQ(result.verdict, Verdict::kBitwiseEqual) << result.reason;
      EXPECT_EQ(data.verdict, kind == kOwn ? TensorVerdict::kBitwiseEqual
                                           : TensorVerdict::kNotCheckable);
      continue;
    }
    ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    ASSERT_EQ(result.culprits.size(), 1u);
    const Culprit& first = result.culprits.front();
    EXPECT_EQ(first.fqn, "data");
    EXPECT_EQ(first.stage, Stage::kInput);
    // Of ranks that are fed alike the first.
    EXPECT_THAT(first.ranks, ElementsAre(0, 2));
    ASSERT_EQ(Letters(first).front(), "Z");
    EXPECT_THAT(Words(first.classes.front()),
                HasSubstr("ranks 0, 2 read the same rows; the reference reads "
                          "none of them as often"));
    // Nothing was computed from it: what else is wrong is found beside it.
    EXPECT_EQ(result.downstream, 0);
  }
}

TEST_F(CheckTest, OtherItemsOfDataMatterOnlyThroughTheModelsInput) {
  const SyntheticTensor tokens = {
      "data", Role::kData, "tokens", Pass::kForward, {8, 32}, {}, 0, {}};
  reference_.extra = candidate_.extra = {tokens};
  candidate_.extra[0].arg = "ids";
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_EQ(Find(result, "data", Role::kData).reason.kind,
            ReasonKind::kOtherItems);
  reference_.omit = [](const SyntheticTensor& t, int, const Leg&, int) {
    return t.fqn.empty() && t.role == Role::kOutput;
  };
  EXPECT_FALSE(Find(CheckAgain(), "data", Role::kData).excused);
}

// The random numbers of a tensor-parallel rank are to be its own.
TEST_F(CheckTest, ShardsThatAreDrawnAlikeAreADivergence) {
  candidate_.notes = {{"graft", R"({"what":"weights"})"}};
  reference_.extra = candidate_.extra = {
      {"norm.weight", Role::kParam, "", Pass::kForward, {1, 32}, {}, -1, {}}};
  enum { kAlike, kOthers, kZeros };
  for (const int kind : {kAlike, kOthers, kZeros}) {
    candidate_.fault = [&](const SyntheticTensor& t, int rank, const Leg&,
                           int64_t index, float* value) {
      if (t.role != Role::kParam) return;
      // Eight rows of 32 on each of two ranks; all of norm.weight on both.
      const bool alike = kind == kAlike && t.fqn == "fc.weight";
      const int64_t local = index - (alike ? rank * 8 * 32 : 0);
      *value = kind == kZeros ? 0 : -SyntheticRun::Value(t, local);
    };
    std::filesystem::remove_all(Path("cand"));
    const CheckResult result = Check();
    if (kind != kAlike) {
      EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
      continue;
    }
    ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    const Culprit& first = result.culprits.front();
    EXPECT_EQ(first.fqn, "fc.weight");
    EXPECT_EQ(first.stage, Stage::kInput);
    EXPECT_THAT(Words(first.classes.front()),
                HasSubstr("ranks 0, 1 held one and the same part"));
  }
}

// Nothing of a grafted run's updated weights is comparable but their copies.
TEST_F(CheckTest, CopiesOfUpdatedWeightsThatDifferAreADivergence) {
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->extra = {{"norm.weight",
                   Role::kParamUpdated,
                   "",
                   Pass::kOptimizer,
                   {1, 32},
                   {},
                   -1,
                   {}}};
  }
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kParamUpdated && rank == 1) *value += 0.5f;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_EQ(result.culprits.front().fqn, "norm.weight");
  EXPECT_THAT(Letters(result.culprits.front()), ElementsAre("R"));
}

TEST_F(CheckTest, NonFiniteValuesAreFoundAtTheirFirstProducer) {
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput && rank == 1) {
      *value = std::numeric_limits<float>::quiet_NaN();
    }
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().fqn, "fc");
  ASSERT_FALSE(Letters(result.culprits.front()).empty());
  EXPECT_EQ(Letters(result.culprits.front()).front(), "N");
  EXPECT_THAT(result.culprits.front().ranks, ElementsAre(1));
}

TEST_F(CheckTest, ZeroesAreAMissingValue) {
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kGradReduced) *value = 0;
  };
  EXPECT_EQ(Letters(Check().culprits.front()).front(), "M");
}

TEST_F(CheckTest, OtherInputsAreTheFirstFindingWithTheirRows) {
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    // Rows 2 and 3 of the global batch, and all that follows from them.
    const auto width = t.global[1];
    const bool row =
        t.batch_dim >= 0 && index / width >= 2 && index / width < 4;
    const bool gradient =
        t.role == Role::kGradLocal || t.role == Role::kGradReduced;
    if (row || gradient) *value = -*value + 0.25f;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  const Culprit& first = result.culprits.front();
  EXPECT_EQ(first.stage, Stage::kInput);
  ASSERT_THAT(Letters(first), ElementsAre("Z"));
  EXPECT_THAT(Words(first.classes[0]), HasSubstr("rows 2, 3 of the global"));
  EXPECT_TRUE(Find(result, "fc", Role::kOutput).reason.foreign_rows.empty());
}

TEST_F(CheckTest, TheSameRowsInAnotherOrderAreMatchedByContent) {
  candidate_.noise = 0;
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.batch_dim < 0) return;
    const auto width = t.global[1];
    const int64_t row = SyntheticRun::kRows - 1 - index / width;
    *value = SyntheticRun::Value(t, row * width + index % width);
  };
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kBitwiseEqual) << result.reason;
  ASSERT_FALSE(result.notes.empty());
  EXPECT_THAT(Notes(result), Contains(HasSubstr("another order")));
}

TEST_F(CheckTest, WithoutAReferenceCopiesAreCompared) {
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "fc" && t.role == Role::kInput && rank == 1) *value += 1;
  };
  candidate_.Write(Path("cand"));
  CheckOptions options;
  options.candidate = Path("cand");
  const auto result = RunCheck(options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->verdict, Verdict::kDiverged);
  EXPECT_THAT(Letters(result->culprits.front()), ElementsAre("R"));
}

TEST_F(CheckTest, WithoutAReferenceNothingComparedIsInconclusive) {
  candidate_.mesh = {};
  candidate_.Write(Path("cand"));
  CheckOptions options;
  options.candidate = Path("cand");
  const auto result = RunCheck(options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->verdict, Verdict::kInconclusive);
}

TEST_F(CheckTest, AResultOfZerosBesideOneThatIsJudgedIsEnough) {
  reference_.extra = candidate_.extra = {{"fc",
                                          Role::kOutput,
                                          "1",
                                          Pass::kForward,
                                          {SyntheticRun::kRows, 4},
                                          {},
                                          0,
                                          {}}};
  bool all = false;
  const auto zero = [&](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    const bool result = t.fqn == "fc" && t.role == Role::kOutput;
    if (result && (all || t.arg == "1")) *value = 0;
  };
  reference_.fault = candidate_.fault = zero;
  CheckResult result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  all = true;
  result = CheckAgain();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
}

// One number, and a bound from three samples of it.
TEST_F(CheckTest, ALossWhoseBoundIsTooWideIsJudgedByItsGradient) {
  reference_.extra = candidate_.extra = {
      {"loss", Role::kLoss, "value", Pass::kForward, {1, 1}, {}, -1, {}}};
  bool gradient_too = false;
  std::function<bool(const SyntheticTensor&)> is_loss = [](const auto& t) {
    return t.role == Role::kLoss;
  };
  reference_.fault = [&](const SyntheticTensor& t, int, const Leg& leg, int64_t,
                         float* value) {
    const bool gradient = t.fqn.empty() && t.role == Role::kGradOutput;
    if (leg != "real" && (is_loss(t) || (gradient_too && gradient))) {
      *value *= 1.5f;
    }
  };
  candidate_.fault = [&](const SyntheticTensor& t, int, const Leg&, int64_t,
                         float* value) {
    const bool gradient = t.fqn.empty() && t.role == Role::kGradOutput;
    if (is_loss(t) || (gradient_too && gradient)) *value *= 1.01f;
  };
  CheckResult result = CheckAgain();
  EXPECT_EQ(Find(result, "loss", Role::kLoss).verdict,
            TensorVerdict::kNotCheckable);
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  gradient_too = true;
  EXPECT_EQ(CheckAgain().verdict, Verdict::kInconclusive);
  // The model may return it.
  gradient_too = false;
  reference_.extra[0].fqn = candidate_.extra[0].fqn = "";
  reference_.extra[0].role = candidate_.extra[0].role = Role::kOutput;
  is_loss = [](const SyntheticTensor& t) { return t.arg == "value"; };
  result = CheckAgain();
  EXPECT_EQ(result.not_checkable, 1);
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  // Without gradients nothing stands for it.
  reference_.omit =
      candidate_.omit = [](const SyntheticTensor& t, int, const Leg&, int) {
        return t.role == Role::kGradOutput;
      };
  EXPECT_EQ(CheckAgain().verdict, Verdict::kInconclusive);
}

TEST_F(CheckTest, ProgressIsToldToTheEnd) {
  Check();
  CheckOptions options;
  options.reference = Path("ref");
  options.candidate = Path("cand");
  options.threads = 1;
  MeasureProgress progress;
  options.progress = &progress;
  const auto result = RunCheck(options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(progress.tensors, 10);
  EXPECT_EQ(progress.tensors_total, 10);
  EXPECT_EQ(progress.bytes_read, result->bytes_compared);
  EXPECT_GT(progress.work_total, result->bytes_compared);
  EXPECT_EQ(progress.work, progress.work_total);
}

TEST_F(CheckTest, MoreRiskIsASharperBound) {
  const auto headroom = [&](double risk) {
    reference_.Write(Path("ref"));
    candidate_.Write(Path("cand"));
    CheckOptions options;
    options.reference = Path("ref");
    options.candidate = Path("cand");
    options.risk = risk;
    const auto result = RunCheck(options);
    EXPECT_TRUE(result.ok());
    EXPECT_GT(result->tests, 0);
    std::filesystem::remove_all(Path("ref"));
    std::filesystem::remove_all(Path("cand"));
    return Find(*result, "fc", Role::kOutput)
        .legs.at(0)
        .Find(Statistic::kProjection)
        ->headroom;
  };
  EXPECT_GT(headroom(0.1), headroom(1e-9));
}

TEST_F(CheckTest, OnlyTheIterationsAskedForAreJudgedAndRead) {
  reference_.iterations = candidate_.iterations = 3;
  candidate_.faulty_iteration = 1;
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput) *value *= 2;
  };
  const CheckResult all = Check();
  ASSERT_EQ(all.verdict, Verdict::kDiverged);
  CheckOptions options;
  options.reference = Path("ref");
  options.candidate = Path("cand");
  int64_t bytes = 0;
  for (int i = 0; i < 3; ++i) {
    options.iterations = {i, i + 1};
    const auto one = RunCheck(options);
    ASSERT_TRUE(one.ok()) << one.error().message();
    EXPECT_EQ(one->verdict, i == 1 ? Verdict::kDiverged : Verdict::kWithin);
    EXPECT_THAT(one->iterations, ElementsAre(i));
    for (const TensorJudgement& t : one->tensors) EXPECT_EQ(t.id.iteration, i);
    bytes += one->bytes_compared;
  }
  EXPECT_EQ(bytes, all.bytes_compared);
}

// Fewer samples of noise: the same verdict as of a trace that has no more.
TEST_F(CheckTest, OnlyTheLegsAskedForJudge) {
  CheckOptions options;
  Check();
  options.reference = Path("ref");
  options.candidate = Path("cand");
  options.legs = {"noise.2"};
  const auto some = RunCheck(options);
  ASSERT_TRUE(some.ok()) << some.error().message();
  EXPECT_THAT(some->reference.legs, ElementsAre("noise.2", "real"));
  options.legs = std::vector<Leg>();
  const auto none = RunCheck(options);
  ASSERT_TRUE(none.ok()) << none.error().message();
  EXPECT_EQ(none->verdict, Verdict::kInconclusive);
}

TEST_F(CheckTest, WhatOnlyTheReferenceHasCountsOnlyWhereAskedFor) {
  reference_.iterations = 2;
  EXPECT_EQ(Check().verdict, Verdict::kInconclusive);
  CheckOptions options;
  options.reference = Path("ref");
  options.candidate = Path("cand");
  options.iterations = {0, 1};
  const auto first = RunCheck(options);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->verdict, Verdict::kWithin) << first->reason;
  EXPECT_EQ(first->coverage.reference_only, 0);
}

TEST_F(CheckTest, RowsOfOtherIterationsAreNotLookedAt) {
  candidate_.iterations = reference_.iterations = 2;
  candidate_.noise = 0;
  candidate_.faulty_iteration = 1;
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.batch_dim < 0) return;
    const auto width = t.global[1];
    const int64_t row = SyntheticRun::kRows - 1 - index / width;
    *value = SyntheticRun::Value(t, row * width + index % width);
  };
  Check();
  CheckOptions options;
  options.reference = Path("ref");
  options.candidate = Path("cand");
  options.iterations = {0, 1};
  const auto first = RunCheck(options);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(Notes(*first), Not(Contains(HasSubstr("another order"))));
}

TEST_F(CheckTest, AnIterationThatASideDoesNotHoldIsAnError) {
  Check();
  CheckOptions options;
  options.reference = Path("ref");
  options.candidate = Path("cand");
  options.iterations = {5, 9};
  const auto none = RunCheck(options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message(), HasSubstr("no iteration of 5:9"));

  // The reference alone lacks it: nothing could be compared.
  std::filesystem::remove_all(Path("cand"));
  candidate_.iterations = 2;
  candidate_.Write(Path("cand"));
  options.iterations = {1, 2};
  const auto reference_lacks = RunCheck(options);
  ASSERT_FALSE(reference_lacks.ok());
  EXPECT_THAT(reference_lacks.error().message(), HasSubstr("/ref holds"));
}

// The report is a function of what the traces say and of nothing else.
TEST_F(CheckTest, TheReportDependsOnNeitherThreadsNorTheOrderOfRanks) {
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&,
                        int64_t index, float* value) {
    if (t.role == Role::kOutput && (index + rank) % 5 == 0) *value *= 1.5f;
  };
  const auto render = [](CheckResult result) {
    result.seconds = 0;
    return RenderJson(result);
  };
  const std::string one = render(Check(1));
  EXPECT_EQ(one, render(Check(4)));
  std::filesystem::remove_all(Path("cand"));
  candidate_.reverse_ranks = true;
  EXPECT_EQ(one, render(Check(3)));
}

}  // namespace
}  // namespace ttrace::check_test
