#include "src/pipeline/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "src/pipeline/synthetic_run_test.h"
#include "src/report/render.h"

namespace ttrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CheckTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("check_test_") +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    reference_.legs = {"real", "noise.1", "noise.2", "noise.3"};
    candidate_.mesh = {{"dp", 1}, {"tp", 2}};
    candidate_.noise = 0x1p-24f;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const char* name) const { return (folder_ / name).string(); }

  CheckResult Check(int threads = 0) {
    if (!std::filesystem::exists(Path("ref"))) reference_.Write(Path("ref"));
    if (!std::filesystem::exists(Path("cand"))) candidate_.Write(Path("cand"));
    CheckOptions options;
    options.reference = Path("ref");
    options.candidate = Path("cand");
    options.threads = threads;
    auto result = RunCheck(options);
    if (!result.ok()) {
      ADD_FAILURE() << result.error().message();
      return {};
    }
    return *std::move(result);
  }

  static std::vector<std::string> Letters(const Culprit& culprit) {
    std::vector<std::string> out;
    for (const Diagnosis& d : culprit.classes) out.push_back(d.letter);
    return out;
  }

  std::filesystem::path folder_;
  SyntheticRun reference_;
  SyntheticRun candidate_;
};

TEST_F(CheckTest, ACleanShardedRunIsWithinAndFullyCompared) {
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_TRUE(result.culprits.empty());
  EXPECT_EQ(result.coverage.compared, 10);
  EXPECT_EQ(result.coverage.reference_only + result.coverage.candidate_only, 0);
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
    EXPECT_EQ(t.deciding()->decides, Statistic::kElement);
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
  EXPECT_THAT(first.classes[0].evidence, HasSubstr("dp = 2"));
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
  EXPECT_THAT(first.classes[0].evidence, HasSubstr("rows 2, 3 of the global"));
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
  EXPECT_THAT(result.notes.back(), HasSubstr("another order"));
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
