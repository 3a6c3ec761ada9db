#include "src/check/conclusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "src/judge/judge_step.h"

namespace ttrace::conclusion_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunNote Note(NoteKind kind, const std::string& way_out) {
  RunNote note;
  note.kind = kind;
  note.way_out = way_out;
  return note;
}

// A run of one tensor, within its bound.
class ConclusionTest : public testing::Test {
 protected:
  ConclusionTest() {
    TensorJudgement t;
    t.id.fqn = "fc";
    t.verdict = TensorVerdict::kWithin;
    result_.tensors = {t};
    result_.has_reference = true;
    result_.reference.folder = "REF";
    result_.reference.legs = {"real", "noise.1"};
    result_.candidate.folder = "CAND";
    result_.coverage.compared = 1;
    input_.evidence.any = true;
    input_.replica_groups = 1;
  }

  void ExpectOpen(const std::string& words) {
    const Conclusion out = Conclude(result_, input_);
    EXPECT_EQ(out.verdict, Verdict::kInconclusive);
    EXPECT_THAT(out.reason, HasSubstr(words));
  }

  CheckResult result_;
  ConclusionInput input_;
};

TEST_F(ConclusionTest, ACheckOfNothingIsNoPass) {
  EXPECT_EQ(Conclude(result_, input_).verdict, Verdict::kWithin);
  result_.tensors[0].verdict = TensorVerdict::kBitwiseEqual;
  EXPECT_EQ(Conclude(result_, input_).verdict, Verdict::kBitwiseEqual);
  result_.coverage.compared = 0;
  ExpectOpen("nothing was compared");
}

TEST_F(ConclusionTest, WithoutEvidenceItIsNoPassEither) {
  input_.evidence.any = false;
  ExpectOpen("nothing that the runs computed is checkable");
  input_.evidence.missing = {
      {NoteKind::kNoEvidence, "no output of fc can be judged", ""}};
  ExpectOpen("nothing that the runs computed is checkable: no output of fc");
  input_.evidence.any = true;
  ExpectOpen("no output of fc can be judged");
}

TEST_F(ConclusionTest, WithoutAReferenceCopiesAreTheEvidence) {
  result_.has_reference = false;
  EXPECT_EQ(Conclude(result_, input_).verdict, Verdict::kWithin);
  input_.replica_groups = 0;
  ExpectOpen("no value is held by more than one rank");
  input_.step_gap = ReasonOf({StepGap::Kind::kAlgorithm, "Lion"}, {0});
  ExpectOpen("the algorithm Lion is not known");
  input_.replayed_steps = 1;
  EXPECT_EQ(Conclude(result_, input_).verdict, Verdict::kWithin);
}

TEST_F(ConclusionTest, NextStepsOfADivergenceShowItAndCheckTheFix) {
  Culprit culprit;
  culprit.fqn = culprit.tensor.fqn = "fc";
  result_.culprits = {culprit};
  result_.verdict = Verdict::kDiverged;
  EXPECT_THAT(NextSteps(result_),
              ElementsAre("ttrace inspect CAND 'fc'",
                          HasSubstr("ttrace diff -o NEW --reference-trace REF "
                                    "--candidate CMD")));
  result_.has_reference = false;
  EXPECT_THAT(NextSteps(result_),
              ElementsAre("ttrace inspect CAND 'fc'",
                          HasSubstr("compare with a trusted run")));
}

TEST_F(ConclusionTest, NextStepsOfAnOpenVerdictCloseIt) {
  result_.verdict = Verdict::kInconclusive;
  result_.notes = {Note(NoteKind::kDamage, "record it again"),
                   Note(NoteKind::kDamage, ""),
                   Note(NoteKind::kLegNotUsed, "record it with --graft")};
  EXPECT_THAT(NextSteps(result_),
              ElementsAre("record it again",
                          "another try: ttrace diff -o NEW --reference-trace "
                          "REF --candidate CMD",
                          "ttrace inspect CAND", "ttrace inspect REF"));
  result_.notes = {};
  result_.reference.legs = {"real"};
  EXPECT_THAT(NextSteps(result_),
              ElementsAre(HasSubstr("--as-reference"), "ttrace inspect CAND",
                          "ttrace inspect REF"));
  result_.has_reference = false;
  EXPECT_THAT(NextSteps(result_), ElementsAre("ttrace inspect CAND"));
  result_.verdict = Verdict::kWithin;
  EXPECT_TRUE(NextSteps(result_).empty());
}

}  // namespace
}  // namespace ttrace::conclusion_test
