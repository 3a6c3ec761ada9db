// An iteration that one run has and the other has not: nobody's fault, and no
// pass either.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "src/check/testing/check_fixture.h"

namespace ttrace::missing_iterations_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class MissingIterationsTest : public CheckTest {
 protected:
  CheckResult CheckOnly(const std::optional<IterationRange>& iterations) {
    Check();
    CheckOptions options;
    options.reference = Path("ref");
    options.candidate = Path("cand");
    options.iterations = iterations;
    auto result = RunCheck(options);
    EXPECT_TRUE(result.ok());
    return result.ok() ? *std::move(result) : CheckResult();
  }

  static std::string Excuses(const CheckResult& result) {
    std::string out;
    for (const auto& [reason, count] : result.coverage.excused) {
      out += reason + "; ";
    }
    return out;
  }
};

TEST_F(MissingIterationsTest, OfTheCandidateAreSaidOnceAndNotCompared) {
  reference_.iterations = 3;
  candidate_.iterations = 2;
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_EQ(result.reason,
            "iteration 2 is missing in the candidate (record the same "
            "iterations of both runs, or check what both have with "
            "--iterations 0:2)");
  EXPECT_EQ(result.coverage.reference_only, 0);
  EXPECT_EQ(Excuses(result),
            "of an iteration that is missing in the candidate; ");
  EXPECT_GT(result.coverage.compared, 0);
  EXPECT_THAT(result.culprits, IsEmpty());
  EXPECT_THAT(result.next_steps.front(), HasSubstr("--iterations 0:2"));
}

TEST_F(MissingIterationsTest, OfTheReferenceLikewise) {
  reference_.iterations = 1;
  candidate_.iterations = 3;
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_THAT(result.reason,
              StartsWith("iterations 1, 2 are missing in the reference"));
  EXPECT_EQ(result.coverage.candidate_only, 0);
}

TEST_F(MissingIterationsTest, AreNoneOfThoseThatWereAskedFor) {
  reference_.iterations = 3;
  candidate_.iterations = 2;
  const CheckResult result = CheckOnly(IterationRange{0, 2});
  EXPECT_EQ(result.verdict, Verdict::kWithin) << result.reason;
  EXPECT_EQ(Excuses(result), "");
}

TEST_F(MissingIterationsTest, HideNoFaultInTheOthers) {
  reference_.iterations = 3;
  candidate_.iterations = 2;
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput) *value *= 2;
  };
  const CheckResult result = Check();
  EXPECT_EQ(result.verdict, Verdict::kDiverged);
  ASSERT_FALSE(result.culprits.empty());
  EXPECT_EQ(result.culprits.front().fqn, "fc");
}

}  // namespace
}  // namespace ttrace::missing_iterations_test
