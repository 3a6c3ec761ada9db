// Steps that a rank, or all of them, did not make.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "src/check/testing/check_fixture.h"
#include "src/in_place/condense_trace.h"

namespace ttrace::steps_not_made_test {
namespace {

using testing::ElementsAre;

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
  candidate_.fault = [&](const SyntheticTensor& t, int rank, const Leg&,
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

// Trained until now, and differing by what was rounded since.
TEST_F(UpdateTest, AFrozenParameterOfTheRunsOwnMayDiffer) {
  candidate_.notes.clear();
  const auto frozen = [&](float by) {
    return [this, by](const SyntheticTensor& t, int, const Leg&, int64_t index,
                      float* value) {
      if (t.fqn != before_.fqn) return;
      *value = SyntheticRun::Value(before_, index) * by;
    };
  };
  reference_.first_iteration = candidate_.first_iteration = 3;
  reference_.fault = frozen(1);
  candidate_.fault = frozen(1 + 1e-6F);
  const CheckResult result = Check();
  EXPECT_THAT(result.culprits, testing::IsEmpty());
}

// Rank 1 keeps what it had. Its half is all that there is of it: no copy tells.
TEST_F(UpdateTest, AStepThatDidNotHappenIsFoundWithoutACopy) {
  candidate_.fault = [&](const SyntheticTensor& t, int rank, const Leg&,
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
    reference_.fault = [&](const SyntheticTensor& t, int, const Leg&,
                           int64_t index, float* value) {
      if (IsAfter(t)) *value = SyntheticRun::Value(before_, index) * (1 + step);
    };
    std::filesystem::remove_all(Path("cand"));
    std::filesystem::remove_all(Path("ref"));
    EXPECT_EQ(Check().verdict == Verdict::kDiverged, step == 0.1f) << step;
  }
  // A frozen bias is zero before and after.
  reference_.fault = candidate_.fault = [](const SyntheticTensor& t, int,
                                           const Leg&, int64_t, float* value) {
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
  candidate_.fault = [&](const SyntheticTensor& t, int rank, const Leg&,
                         int64_t index, float* value) {
    if (IsAfter(t) && rank % 2 == 1 && index != 33) {
      *value = SyntheticRun::Value(before_, index);
    }
  };
  EXPECT_EQ(Check().verdict, Verdict::kWithin);
  std::filesystem::remove_all(Path("cand"));
  std::filesystem::remove_all(Path("ref"));
  reference_.fault = [&](const SyntheticTensor& t, int, const Leg&,
                         int64_t index, float* value) {
    if (IsAfter(t) && index % 4 != 0) {
      *value = SyntheticRun::Value(before_, index);
    }
  };
  candidate_.fault = [&](const SyntheticTensor& t, int, const Leg&,
                         int64_t index, float* value) {
    if (IsAfter(t)) *value = SyntheticRun::Value(before_, index);
  };
  EXPECT_EQ(Check().verdict, Verdict::kWithin);
}

// Of digests an equal one says that weights did not move, and the reference's
// values whether they should have.
TEST_F(UpdateTest, ALeftOutStepIsToldByDigests) {
  const auto keep = [this](const SyntheticTensor& t, int, const Leg&,
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
    reference_.fault = [this](const SyntheticTensor& t, int, const Leg&,
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
  candidate_.fault = [this](const SyntheticTensor& t, int rank, const Leg&,
                            int64_t index, float* value) {
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
  reference_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
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
  candidate_.omit = [](const SyntheticTensor& t, int, const Leg&, int) {
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
  reference_.fault =
      candidate_.fault = [this](const SyntheticTensor& t, int, const Leg&,
                                int64_t index, float* value) {
        if (!IsAfter(t)) return;
        const float step = index < 32 ? 0.1f : 0;
        *value = SyntheticRun::Value(before_, index) * (1 + step);
      };
  EXPECT_NE(Check().verdict, Verdict::kDiverged);
}

}  // namespace
}  // namespace ttrace::steps_not_made_test
