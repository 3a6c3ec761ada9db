// What is missing or not understood leaves the verdict open, and is named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "src/check/testing/check_fixture.h"

namespace ttrace::open_verdicts_test {
namespace {

using testing::Contains;
using testing::HasSubstr;

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
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
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

// Of everything wrong: what is not understood is said, never judged.
class UnknownTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                          float* value) {
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
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&, int64_t,
                        float* value) {
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
  const auto zero = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                       float* value) {
    if (t.role == Role::kGradLocal || t.role == Role::kGradReduced) *value = 0;
  };
  reference_.fault = candidate_.fault = zero;
  ExpectOpen("is zero or not finite in the reference");
}

// Where a module has several results, one may be zero on purpose.

}  // namespace
}  // namespace ttrace::open_verdicts_test
