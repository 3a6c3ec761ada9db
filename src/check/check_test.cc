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

#include "src/check/check_fixture_test.h"
#include "src/measure/condense_trace.h"
#include "src/report/reason_words.h"
#include "src/report/render.h"

namespace ttrace {
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
  const auto broken_in = [&](const std::vector<std::string>& legs) {
    candidate_.fault = [legs](const SyntheticTensor& t, int rank,
                              const std::string& leg, int64_t index,
                              float* value) {
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
       std::vector<std::vector<std::string>>{{"replay"}, {"real", "replay"}}) {
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
    candidate_.fault = [=](const SyntheticTensor& t, int rank,
                           const std::string& leg, int64_t index,
                           float* value) {
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
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string& leg,
                        int64_t, float* value) {
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

TEST_F(CheckTest, OneWrongElementIsFoundOnItsRank) {
  candidate_.fault = [](const SyntheticTensor& t, int rank, const std::string&,
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
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string&,
                        int64_t, float* value) {
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
  candidate_.fault = [](const SyntheticTensor& t, int rank, const std::string&,
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
  candidate_.fault = [](const SyntheticTensor& t, int rank, const std::string&,
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
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  candidate_.noise = 0;
  candidate_.notes = {{"graft", R"({"what":"data"})"}};
  enum { kAsRank0, kOthers, kOneMicroBatch, kOneRow };
  for (const int kind : {kAsRank0, kOthers, kOneMicroBatch, kOneRow}) {
    candidate_.fault = [&](const SyntheticTensor& t, int rank,
                           const std::string&, int64_t index, float* value) {
      const bool second = index / 32 >= 4;  // of two micro-batches
      if (t.role == Role::kData && kind == kOneRow) {
        *value = SyntheticRun::Value(t, index % 32);  // positions
        return;
      }
      if (t.role == Role::kData && rank >= 2 &&
          (kind != kOneMicroBatch || second)) {
        *value =
            kind == kOthers ? -*value : SyntheticRun::Value(t, index - 2 * 32);
      }
    };
    std::filesystem::remove_all(Path("cand"));
    const CheckResult result = Check();
    const TensorJudgement& data = Find(result, "data", Role::kData);
    if (kind != kAsRank0) {
      EXPECT_EQ(result.verdict, Verdict::kBitwiseEqual) << result.reason;
      EXPECT_EQ(data.verdict, TensorVerdict::kNotCheckable);
      continue;
    }
    ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    ASSERT_EQ(result.culprits.size(), 1u);
    const Culprit& first = result.culprits.front();
    EXPECT_EQ(first.fqn, "data");
    EXPECT_EQ(first.stage, Stage::kInput);
    EXPECT_THAT(first.ranks, ElementsAre(2, 3));
    ASSERT_EQ(Letters(first).front(), "Z");
    EXPECT_THAT(Words(first.classes.front()),
                HasSubstr("ranks 2, 3 read the part of ranks 0, 1"));
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
  reference_.omit = [](const SyntheticTensor& t, int, const std::string&, int) {
    return t.fqn.empty() && t.role == Role::kOutput;
  };
  EXPECT_FALSE(Find(CheckAgain(), "data", Role::kData).explained);
}

// The random numbers of a tensor-parallel rank are to be its own.
TEST_F(CheckTest, ShardsThatAreDrawnAlikeAreADivergence) {
  candidate_.notes = {{"graft", R"({"what":"weights"})"}};
  reference_.extra = candidate_.extra = {
      {"norm.weight", Role::kParam, "", Pass::kForward, {1, 32}, {}, -1, {}}};
  enum { kAlike, kOthers, kZeros };
  for (const int kind : {kAlike, kOthers, kZeros}) {
    candidate_.fault = [&](const SyntheticTensor& t, int rank,
                           const std::string&, int64_t index, float* value) {
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
  candidate_.fault = [](const SyntheticTensor& t, int rank, const std::string&,
                        int64_t, float* value) {
    if (t.role == Role::kParamUpdated && rank == 1) *value += 0.5f;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_EQ(result.culprits.front().fqn, "norm.weight");
  EXPECT_THAT(Letters(result.culprits.front()), ElementsAre("R"));
}

// A parameter of which each of two ranks holds a half, and its update.
class UpdateTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    SyntheticTensor after = before_;
    after.role = Role::kParamUpdated;
    after.pass = Pass::kOptimizer;
    reference_.extra = candidate_.extra = {before_, after};
    candidate_.notes = {{"graft", R"({"what":"weights"})"},
                        {"graft", R"({"what":"data"})"}};
  }

  static bool IsAfter(const SyntheticTensor& t) {
    return t.role == Role::kParamUpdated;
  }

  const SyntheticTensor before_ = {
      "norm.weight", Role::kParam,       "", Pass::kForward,
      {16, 4},       {{"tp", Shard{0}}}, -1, {}};
};

// The same where the run is held against weights of its own, of which a
// checksum tells which part changed.
TEST_F(UpdateTest, AStepThatDidNotHappenIsFoundByTheRunsOwnWeights) {
  candidate_.notes.clear();
  EXPECT_NE(Check().verdict, Verdict::kDiverged);
  std::filesystem::remove_all(Path("cand"));
  std::filesystem::remove_all(Path("ref"));
  candidate_.fault = [&](const SyntheticTensor& t, int rank, const std::string&,
                         int64_t index, float* value) {
    if (IsAfter(t) && rank % 2 == 1) {
      *value = SyntheticRun::Value(before_, index);
    }
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_THAT(Letters(result.culprits.front()), ElementsAre("S"));
  EXPECT_THAT(result.culprits.front().ranks, ElementsAre(1));
}

// Rank 1 keeps what it had. Its half is all that there is of it: no copy tells.
TEST_F(UpdateTest, AStepThatDidNotHappenIsFoundWithoutACopy) {
  candidate_.fault = [&](const SyntheticTensor& t, int rank, const std::string&,
                         int64_t index, float* value) {
    if (IsAfter(t) && rank % 2 == 1) {
      *value = SyntheticRun::Value(before_, index);
    }
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  const Culprit& first = result.culprits.front();
  EXPECT_EQ(first.fqn, "norm.weight");
  EXPECT_EQ(first.stage, Stage::kOptimizer);
  EXPECT_THAT(Letters(first), ElementsAre("S"));
  EXPECT_THAT(first.ranks, ElementsAre(1));

  // A bf16 weight moves when its master has, which no trace holds: two units in
  // the last place may be waiting for it, far steps may not.
  reference_.dtype = candidate_.dtype = DType::kBF16;
  for (const float step : {0.01f, 0.1f}) {
    reference_.fault = [&](const SyntheticTensor& t, int, const std::string&,
                           int64_t index, float* value) {
      if (IsAfter(t)) *value = SyntheticRun::Value(before_, index) * (1 + step);
    };
    std::filesystem::remove_all(Path("cand"));
    std::filesystem::remove_all(Path("ref"));
    EXPECT_EQ(Check().verdict == Verdict::kDiverged, step == 0.1f) << step;
  }
  // A frozen bias is zero before and after.
  reference_.fault =
      candidate_.fault = [](const SyntheticTensor& t, int, const std::string&,
                            int64_t, float* value) {
        if (t.fqn == "norm.weight") *value = 0;
      };
  std::filesystem::remove_all(Path("cand"));
  std::filesystem::remove_all(Path("ref"));
  EXPECT_NE(Check().verdict, Verdict::kDiverged);
  reference_.fault = nullptr;
  reference_.dtype = candidate_.dtype = DType::kF32;
  std::filesystem::remove_all(Path("ref"));

  // A single element that moved, or a reference that hardly does: no verdict.
  std::filesystem::remove_all(Path("cand"));
  candidate_.fault = [&](const SyntheticTensor& t, int rank, const std::string&,
                         int64_t index, float* value) {
    if (IsAfter(t) && rank % 2 == 1 && index != 33) {
      *value = SyntheticRun::Value(before_, index);
    }
  };
  EXPECT_EQ(Check().verdict, Verdict::kWithin);
  std::filesystem::remove_all(Path("cand"));
  std::filesystem::remove_all(Path("ref"));
  reference_.fault = [&](const SyntheticTensor& t, int, const std::string&,
                         int64_t index, float* value) {
    if (IsAfter(t) && index % 4 != 0) {
      *value = SyntheticRun::Value(before_, index);
    }
  };
  candidate_.fault = [&](const SyntheticTensor& t, int, const std::string&,
                         int64_t index, float* value) {
    if (IsAfter(t)) *value = SyntheticRun::Value(before_, index);
  };
  EXPECT_EQ(Check().verdict, Verdict::kWithin);
}

// Of digests an equal one says that weights did not move, and the reference's
// values whether they should have.
TEST_F(UpdateTest, ALeftOutStepIsToldByDigests) {
  const auto keep = [this](const SyntheticTensor& t, int, const std::string&,
                           int64_t index, float* value) {
    if (IsAfter(t)) *value = SyntheticRun::Value(before_, index);
  };
  const auto check_condensed = [this](const char* which) {
    std::filesystem::remove_all(Path("cand"));
    std::filesystem::remove_all(Path("ref"));
    std::filesystem::remove_all(Path("small"));
    Check();
    CondenseOptions condense;
    condense.from = Path(which);
    condense.to = Path("small");
    condense.buckets = 0;
    const auto condensed = CondenseTrace(condense);
    EXPECT_TRUE(condensed.ok()) << condensed.error().message();
    EXPECT_GT(condensed->summaries, 0);
    CheckOptions options;
    const bool of_reference = std::string(which) == "ref";
    options.reference = Path(of_reference ? "small" : "ref");
    options.candidate = Path(of_reference ? "cand" : "small");
    const auto result = RunCheck(options);
    EXPECT_TRUE(result.ok()) << result.error().message();
    return *result;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    reference_.dtype = candidate_.dtype = dtype;
    for (SyntheticRun* run : {&reference_, &candidate_}) {
      for (SyntheticTensor& tensor : run->extra) tensor.global = {64, 64};
    }
    // Far enough for a weight of low precision to move, too.
    reference_.fault = [this](const SyntheticTensor& t, int, const std::string&,
                              int64_t index, float* value) {
      if (IsAfter(t)) *value = 1.1f * SyntheticRun::Value(before_, index);
    };
    candidate_.fault = keep;
    const CheckResult result = check_condensed("cand");
    ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    EXPECT_EQ(result.culprits.front().fqn, "norm.weight");
    EXPECT_THAT(result.culprits.front().ranks, ElementsAre(0, 1));
    // Of a reference of digests it is not known how far it moved.
    EXPECT_TRUE(check_condensed("ref").culprits.empty());
    // Nobody is accused of a step that the reference did not make either.
    reference_.fault = keep;
    EXPECT_TRUE(check_condensed("cand").culprits.empty());
  }
}

TEST_F(UpdateTest, OnlyRanksThatKeptWhatTheyHadDidNotStep) {
  candidate_.fault = [this](const SyntheticTensor& t, int rank,
                            const std::string&, int64_t index, float* value) {
    if (!IsAfter(t)) return;
    *value = rank == 1 ? SyntheticRun::Value(before_, index) : 2 * *value;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  const TensorJudgement& t = Find(result, "norm.weight", Role::kParamUpdated);
  EXPECT_THAT(t.ranks, ElementsAre(1));
  EXPECT_THAT(t.reason.counts, ElementsAre(32, 32));
}

// The step before is where this one started.
TEST_F(UpdateTest, ALaterStepThatDidNotHappenIsFoundToo) {
  reference_.iterations = candidate_.iterations = 2;
  reference_.faulty_iteration = 1;
  reference_.fault = [](const SyntheticTensor& t, int, const std::string&,
                        int64_t, float* value) {
    if (IsAfter(t)) *value = -*value;
  };
  candidate_.noise = 0;
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
  EXPECT_EQ(result.culprits.front().iteration, 1);
  EXPECT_THAT(Letters(result.culprits.front()), ElementsAre("S"));
  EXPECT_THAT(result.culprits.front().ranks, ElementsAre(0, 1));
}

TEST_F(UpdateTest, AStepBehindTheLastIterationIsNotMissing) {
  candidate_.omit = [](const SyntheticTensor& t, int, const std::string&, int) {
    return IsAfter(t);
  };
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_EQ(Find(result, "norm.weight", Role::kParamUpdated).reason.kind,
            ReasonKind::kOneMoreStep);
}

// A library may keep a weight flat and hand it out in its shape.
TEST_F(UpdateTest, OfAWeightOfAnotherShapeBeforeNothingIsSaid) {
  reference_.extra[0].global = candidate_.extra[0].global = {64, 1};
  EXPECT_EQ(Check().verdict, Verdict::kWithin);
}

// Rank 1 holds the half of a bf16 weight that the step leaves alone.
TEST_F(UpdateTest, WhatOtherRanksMovedSaysNothingOfAHalf) {
  reference_.dtype = candidate_.dtype = DType::kBF16;
  reference_.fault = candidate_.fault = [this](const SyntheticTensor& t, int,
                                               const std::string&,
                                               int64_t index, float* value) {
    if (!IsAfter(t)) return;
    const float step = index < 32 ? 0.1f : 0;
    *value = SyntheticRun::Value(before_, index) * (1 + step);
  };
  EXPECT_NE(Check().verdict, Verdict::kDiverged);
}

TEST_F(CheckTest, NonFiniteValuesAreFoundAtTheirFirstProducer) {
  candidate_.fault = [](const SyntheticTensor& t, int rank, const std::string&,
                        int64_t, float* value) {
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
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string&,
                        int64_t, float* value) {
    if (t.role == Role::kGradReduced) *value = 0;
  };
  EXPECT_EQ(Letters(Check().culprits.front()).front(), "M");
}

TEST_F(CheckTest, OtherInputsAreTheFirstFindingWithTheirRows) {
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string&,
                        int64_t index, float* value) {
    // Rows 2 and 3 of the global batch, and all that follows from them.
    const auto width = t.global[1];
    const bool row =
        t.batch_dim >= 0 && index / width >= 2 && index / width < 4;
    if (row) *value = -*value + 0.25f;
  };
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  const Culprit& first = result.culprits.front();
  EXPECT_EQ(first.stage, Stage::kInput);
  ASSERT_THAT(Letters(first), ElementsAre("Z"));
  EXPECT_THAT(Words(first.classes[0]), HasSubstr("rows 2, 3 of the global"));
  EXPECT_TRUE(Find(result, "fc", Role::kOutput).reason.foreign_rows.empty());
}

TEST_F(CheckTest, TheSameRowsInAnotherOrderAreMatchedByContent) {
  candidate_.noise = 0;
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string&,
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

TEST_F(CheckTest, AMissingRankIsInconclusive) {
  candidate_.omit_ranks = {1};
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_THAT(result.reason, HasSubstr("rank 1"));
}

TEST_F(CheckTest, AMissingTensorIsInconclusive) {
  candidate_.omitted_fqn = "fc";
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_GT(result.coverage.reference_only, 0);
}

TEST_F(CheckTest, AnExtraTensorIsInconclusive) {
  reference_.omitted_fqn = "fc";
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_GT(result.coverage.candidate_only, 0);
}

TEST_F(CheckTest, WithoutNoiseLegsNothingIsCheckable) {
  reference_.legs = {"real"};
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
  EXPECT_THAT(result.next_steps.front(), HasSubstr("--as-reference"));
  EXPECT_THAT(Notes(result), Contains(HasSubstr("no output of the model 0")));
}

TEST_F(CheckTest, GradientsThatNothingBoundsLeaveTheVerdictOpen) {
  // Outputs are equal bit for bit, which needs no bound; gradients are not.
  reference_.legs = {"real"};
  candidate_.noise = 0;
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string&,
                        int64_t, float* value) {
    if (t.role == Role::kGradLocal || t.role == Role::kGradReduced) {
      *value *= 2;
    }
  };
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_THAT(result.reason,
              HasSubstr("no grad_local of fc weight can be judged (1 of them): "
                        "no noise leg in the reference"));
}

TEST_F(CheckTest, AnEmptyTraceIsInconclusive) {
  candidate_.legs = {};
  EXPECT_EQ(Check().verdict, Verdict::kInconclusive);
}

TEST_F(CheckTest, WithoutAReferenceCopiesAreCompared) {
  candidate_.fault = [](const SyntheticTensor& t, int rank, const std::string&,
                        int64_t, float* value) {
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

// Of everything wrong: what is not understood is said, never judged.
class UnknownTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    candidate_.fault = [](const SyntheticTensor& t, int, const std::string&,
                          int64_t, float* value) {
      if (t.fqn == "fc" && t.role == Role::kOutput) *value *= 2;
    };
  }
  void ExpectOpen(const std::string& words) {
    const CheckResult result = Check();
    EXPECT_EQ(result.verdict, Verdict::kInconclusive) << result.reason;
    EXPECT_TRUE(result.culprits.empty());
    EXPECT_THAT(result.reason, HasSubstr(words));
  }
};

TEST_F(UnknownTest, WithoutANoteTheFaultIsFound) {
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
}

TEST_F(UnknownTest, WhatIsNotSupportedIsNamed) {
  candidate_.notes = {
      {"unsupported", R"({"what":"distributed optimizer","reason":"no rank )"
                      R"(holds whole gradients","way_out":"run without it"})"}};
  ExpectOpen("distributed optimizer is not supported");
}

TEST_F(UnknownTest, OtherComputationsAreNamedWithTheOptionThatSettlesIt) {
  const auto note = [](int size) {
    return std::vector<std::pair<std::string, std::string>>{
        {"computation", R"({"name":"padded_vocab_size","value":)" +
                            std::to_string(size) +
                            R"(,"option":"--make-vocab-size-divisible-by"})"}};
  };
  reference_.notes = note(512);
  candidate_.notes = note(640);
  ExpectOpen("padded_vocab_size is 512 in the reference and 640");
  std::filesystem::remove_all(Path("cand"));
  candidate_.notes = note(512);
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
}

TEST_F(UnknownTest, WhatWasNotGraftedMakesNoCulprit) {
  candidate_.notes = {
      {"graft", R"({"what":"weights"})"},
      {"not_grafted", R"({"what":"weights","fqn":"fc.gain",)"
                      R"("iteration":0,"reason":"ambiguous"})"}};
  ExpectOpen("kept the candidate's own values (fc.gain): ambiguous");
}

TEST_F(UnknownTest, CopiesThatDifferAreAFindingAllTheSame) {
  candidate_.notes = {{"not_grafted",
                       R"({"what":"weights","fqn":"fc.gain",)"
                       R"("iteration":0,"reason":"ambiguous"})"}};
  candidate_.fault = [](const SyntheticTensor& t, int rank, const std::string&,
                        int64_t, float* value) {
    if (t.fqn == "fc" && t.role == Role::kInput && rank == 1) *value += 1;
  };
  EXPECT_EQ(Check().verdict, Verdict::kDiverged);
}

TEST_F(UnknownTest, ALegThatARankDidNotEndIsNotUsed) {
  reference_.unsealed_legs = {"noise.3"};
  candidate_.fault = nullptr;
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_THAT(Notes(result), Contains(HasSubstr("leg noise.3 not used")));
  EXPECT_EQ(Find(result, "fc", Role::kOutput)
                .legs.at(0)
                .tests.at(0)
                .expected.noise_legs,
            2);
}

// A missing all-reduce would pass, too.
TEST_F(UnknownTest, GradientsThatAreAllZeroAreNoEvidence) {
  const auto zero = [](const SyntheticTensor& t, int, const std::string&,
                       int64_t, float* value) {
    if (t.role == Role::kGradLocal || t.role == Role::kGradReduced) *value = 0;
  };
  reference_.fault = candidate_.fault = zero;
  ExpectOpen("is zero or not finite in the reference");
}

// Where a module has several results, one may be zero on purpose.
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
  const auto zero = [&](const SyntheticTensor& t, int, const std::string&,
                        int64_t, float* value) {
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
  reference_.fault = [&](const SyntheticTensor& t, int, const std::string& leg,
                         int64_t, float* value) {
    const bool gradient = t.fqn.empty() && t.role == Role::kGradOutput;
    if (leg != "real" && (is_loss(t) || (gradient_too && gradient))) {
      *value *= 1.5f;
    }
  };
  candidate_.fault = [&](const SyntheticTensor& t, int, const std::string&,
                         int64_t, float* value) {
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
      candidate_.omit = [](const SyntheticTensor& t, int, const std::string&,
                           int) { return t.role == Role::kGradOutput; };
  EXPECT_EQ(CheckAgain().verdict, Verdict::kInconclusive);
}

TEST_F(CheckTest, ProgressIsToldToTheEnd) {
  Check();
  CheckOptions options;
  options.reference = Path("ref");
  options.candidate = Path("cand");
  options.threads = 1;
  std::vector<std::pair<int64_t, int64_t>> told;
  options.progress = [&](int64_t done, int64_t total) {
    told.emplace_back(done, total);
  };
  ASSERT_TRUE(RunCheck(options).ok());
  EXPECT_THAT(told, ElementsAre(std::pair(10, 10)));
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
             const std::function<bool(const std::string&)>& which) {
    candidate_.fault = [=](const SyntheticTensor& t, int,
                           const std::string& leg, int64_t index,
                           float* value) {
      if (t.fqn == fqn && t.role == role && which(leg) && index % 3 == 0) {
        *value *= 1.25f;
      }
    };
  }
  static bool Everywhere(const std::string&) { return true; }
  static bool OnlyAlone(const std::string& leg) { return leg == "isolated"; }
  static bool OnlyEndToEnd(const std::string& leg) { return leg == "real"; }
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
    candidate_.fault = [=](const SyntheticTensor& t, int, const std::string&,
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
  Break("fc", Role::kOutput, OnlyEndToEnd);
  EXPECT_EQ(CheckAgain().verdict, Verdict::kDiverged);
  Break("later", Role::kOutput, OnlyEndToEnd);
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
  reference_.fault = [](const SyntheticTensor& t, int, const std::string& leg,
                        int64_t index, float* value) {
    if (t.fqn == "table.weight" && leg == "fp32") {
      *value *= index % 2 == 0 ? 1.02f : 0.98f;
    }
  };
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string&,
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
  Break("fc", Role::kOutput, OnlyAlone);
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_EQ(result.culprits.front().fqn, "fc");
  EXPECT_THAT(result.culprits.front().found_by, ElementsAre("isolation"));
  EXPECT_EQ(result.isolation.hidden, 1);
  // What happened end to end is not touched by it.
  EXPECT_EQ(Find(result, "fc", Role::kOutput).verdict, TensorVerdict::kWithin);
}

TEST_F(IsolatedCheckTest, AFaultThatOnlyIsolationSeesIsExplainedByThatLeg) {
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string& leg,
                        int64_t, float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput && OnlyAlone(leg)) *value *= 3;
  };
  const CheckResult result = Check();
  ASSERT_FALSE(result.culprits.empty());
  ASSERT_THAT(Letters(result.culprits[0]), ElementsAre("K"));
  EXPECT_NEAR(result.culprits[0].classes[0].value, 3, 1e-5);
}

// A missing factor hits parameters of any name.
TEST_F(IsolatedCheckTest, OneFactorOfTwoParametersIsOneFaultAndSaidToBe) {
  for (const std::string fqn : {"a.weight", "b.bias"}) {
    reference_.extra.push_back(
        {fqn, Role::kGradLocal, "", Pass::kBackward, {16, 16}, {}, -1, {}});
  }
  candidate_.extra = reference_.extra;
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string& leg,
                        int64_t, float* value) {
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

TEST_F(IsolatedCheckTest, WhatHappensOnlyEndToEndIsADisagreement) {
  Break("fc", Role::kOutput, OnlyEndToEnd);
  const CheckResult result = Check();
  ASSERT_EQ(result.verdict, Verdict::kDiverged);
  EXPECT_THAT(result.culprits.front().found_by, ElementsAre("dataflow"));
  EXPECT_THAT(result.culprits.front().disagreement,
              HasSubstr("finds it clean"));
  EXPECT_EQ(result.isolation.disputed, 1);
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
  candidate_.omit = [](const SyntheticTensor& t, int rank,
                       const std::string& leg, int) {
    return t.fqn == "fc" && t.role == Role::kOutput && rank == 1 &&
           leg == "isolated";
  };
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_FALSE(Find(result, "fc", Role::kOutput).isolated);
}

TEST_F(IsolatedCheckTest, OnlyTheNamedIterationAndLegAreNotIsolated) {
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
  reference_.fault = [](const SyntheticTensor& t, int, const std::string& leg,
                        int64_t index, float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput && leg.starts_with("noise")) {
      *value *= index % 2 == 0 ? 1.5f : 0.5f;
    }
  };
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
    candidate_.fault = [=](const SyntheticTensor& t, int rank,
                           const std::string& leg, int64_t index,
                           float* value) {
      if (t.fqn == "fc" && t.role == Role::kGradInput && rank == 1 &&
          index == 5 && (alone || leg == "real")) {
        *value = std::nextafter(*value, 2.0f);
      }
    };
    const CheckResult result = Check();
    ASSERT_EQ(result.verdict, Verdict::kDiverged);
    EXPECT_EQ(Find(result, "fc", Role::kGradInput).out_alone(), alone);
    EXPECT_EQ(result.isolation.faulty, alone ? 1 : 0);
    std::filesystem::remove_all(Path("cand"));
  }
}

TEST_F(IsolatedCheckTest, OtherPrecisionsAreNoYardstickForIsolation) {
  // A reference of its own leg in fp32 gives the candidate's fp32 leg values.
  candidate_.legs = {"real", "fp32", "isolated", "fp32.isolated"};
  const CheckResult result = Check();
  const TensorJudgement& t = Find(result, "fc", Role::kOutput);
  std::vector<std::string> legs;
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
  reference_.fault = [](const SyntheticTensor& t, int, const std::string& leg,
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

TEST_F(CheckTest, OnlyTheIterationsAskedForAreJudgedAndRead) {
  reference_.iterations = candidate_.iterations = 3;
  candidate_.faulty_iteration = 1;
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string&,
                        int64_t, float* value) {
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
  options.legs = std::vector<std::string>();
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
  candidate_.fault = [](const SyntheticTensor& t, int, const std::string&,
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
  candidate_.fault = [](const SyntheticTensor& t, int rank, const std::string&,
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
}  // namespace ttrace
