#include "src/check/diagnostician.h"

#include <gtest/gtest.h>

#include "src/check/open_runs.h"
#include "src/check/testing/check_fixture.h"

namespace ttrace::diagnostician_test {
namespace {

class DiagnosticianTest : public CheckTest {};

TEST_F(DiagnosticianTest, ComparesATensorOnceHoweverOftenItLooksAtIt) {
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput) *value *= 2;
  };
  const CheckResult result = Check();
  ASSERT_FALSE(result.culprits.empty());
  CheckOptions options;
  options.reference = Path("ref");
  options.candidate = Path("cand");
  const auto runs = OpenRuns::Open(options);
  ASSERT_TRUE(runs.ok());
  const RunContext& context = (*runs)->context;
  const ReplayedSteps no_steps;
  const Diagnostician diagnostician(context.reference, *context.candidate,
                                    context.plans, context.rows, result.tensors,
                                    {}, {});
  Culprit culprit = result.culprits.front();
  culprit.classes.clear();
  culprit.pattern.reset();
  diagnostician.Explain(&culprit);
  diagnostician.Picture(&culprit);
  EXPECT_EQ(Letters(culprit), Letters(result.culprits.front()));
  ASSERT_TRUE(culprit.pattern.has_value());
  EXPECT_EQ(culprit.pattern->pieces.size(),
            result.culprits.front().pattern->pieces.size());
  EXPECT_GT(culprit.pattern->pieces.size(), 0);
  EXPECT_EQ(diagnostician.comparisons(), 1);
}

}  // namespace
}  // namespace ttrace::diagnostician_test
