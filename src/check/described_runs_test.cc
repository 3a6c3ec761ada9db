// What a result says of the runs and their tensors beside verdicts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "src/check/testing/check_fixture.h"

namespace ttrace::described_runs_test {
namespace {

using testing::ElementsAre;

class DescribedRunTest : public CheckTest {
 protected:
  // Rank 1's half of an output is wrong, and so is all that follows.
  void MakeWrong() {
    candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&,
                          int64_t, float* value) {
      const bool first = t.fqn == "fc" && t.role == Role::kOutput && rank == 1;
      if (first || t.role == Role::kGradInput) *value *= 1.5F;
    };
  }
  static size_t IndexOf(const CheckResult& result, const std::string& fqn,
                        Role role) {
    for (size_t i = 0; i < result.tensors.size(); ++i) {
      const TensorId& id = result.tensors[i].id;
      if (id.fqn == fqn && id.role == role) return i;
    }
    ADD_FAILURE() << fqn;
    return 0;
  }
};

TEST_F(DescribedRunTest, SaysWhereEachRankLies) {
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  const CheckResult result = Check();
  ASSERT_EQ(result.candidate.grids.size(), 1u);
  const GridSummary& mesh = result.candidate.grids[0];
  EXPECT_EQ(mesh.name, "mesh");
  EXPECT_EQ(mesh.mesh.dims, candidate_.mesh);
  EXPECT_THAT(mesh.coordinates,
              ElementsAre(ElementsAre(0, 0), ElementsAre(0, 1),
                          ElementsAre(1, 0), ElementsAre(1, 1)));
}

TEST_F(DescribedRunTest, ARankThatIsMissingHasNoPlace) {
  candidate_.mesh = {{"dp", 1}, {"tp", 2}};
  candidate_.omit_ranks = {1};
  const CheckResult result = Check();
  ASSERT_EQ(result.candidate.grids.size(), 1u);
  EXPECT_THAT(result.candidate.grids[0].coordinates,
              ElementsAre(ElementsAre(0, 0), ElementsAre()));
}

TEST_F(DescribedRunTest, SaysWhatEachTensorIsMadeOf) {
  const CheckResult result = Check();
  ASSERT_EQ(result.forms.size(), result.tensors.size());
  const TensorForm& weight =
      result.forms[IndexOf(result, "fc.weight", Role::kParam)];
  EXPECT_THAT(weight.shape, ElementsAre(16, 32));
  EXPECT_EQ(weight.dtype, DType::kF32);
}

TEST_F(DescribedRunTest, WhatTheCandidateLacksIsOfTheReferencesForm) {
  candidate_.omitted_fqn = "fc";
  const CheckResult result = Check();
  EXPECT_THAT(result.forms[IndexOf(result, "fc", Role::kOutput)].shape,
              ElementsAre(SyntheticRun::kRows, 16));
}

TEST_F(DescribedRunTest, SaysWhatIsOutOfBoundsForWhichCulprit) {
  MakeWrong();
  const CheckResult result = Check();
  ASSERT_FALSE(result.culprits.empty());
  ASSERT_EQ(result.causes.size(), result.tensors.size());
  for (size_t i = 0; i < result.tensors.size(); ++i) {
    EXPECT_EQ(result.causes[i].culprit >= 0, result.tensors[i].diverged())
        << result.tensors[i].id.fqn;
  }
  const TensorCause& first =
      result.causes[IndexOf(result, "fc", Role::kOutput)];
  EXPECT_EQ(first.culprit, 0);
  EXPECT_EQ(first.as, TensorCause::As::kFirst);
}

TEST_F(DescribedRunTest, PicturesWhereInACulpritItsErrorLies) {
  MakeWrong();
  const CheckResult result = Check();
  ASSERT_FALSE(result.culprits.empty());
  const std::optional<ErrorPattern>& pattern = result.culprits[0].pattern;
  ASSERT_TRUE(pattern);
  // [8, 16], cut along the columns.
  ASSERT_EQ(pattern->errors.size(), 8u * 16u);
  EXPECT_LT(pattern->errors[7], 1e-3);
  EXPECT_GT(pattern->errors[8], 1e-3);
  std::map<std::string, double> by_box;
  for (const ErrorPattern::Piece& piece : pattern->pieces) {
    by_box[piece.box] = std::max(by_box[piece.box], piece.err);
  }
  EXPECT_NEAR(by_box["[0:2, 8:16]"], 0.5, 1e-3);
  EXPECT_LT(by_box["[0:2, 0:8]"], 1e-3);
}

TEST_F(DescribedRunTest, ListsTheModulesWhoseClassIsKnown) {
  candidate_.notes = {{"source_of_class",
                       R"({"class": "Mlp", "file": "model.py", "line": 7,
                           "modules": ["fc", "head"]})"}};
  const CheckResult result = Check();
  ASSERT_EQ(result.modules.size(), 2u);
  EXPECT_EQ(result.modules[1].fqn, "head");
  EXPECT_EQ(result.modules[1].class_name, "Mlp");
  EXPECT_EQ(result.modules[1].file, "model.py");
  EXPECT_EQ(result.modules[1].line, 7);
}

// As of a culprit: nobody looks for a fault in torch's own source.
TEST_F(DescribedRunTest, OfATorchClassItIsTheLineOfWhoUsesIt) {
  candidate_.notes = {
      {"source_of_class", R"({"class": "Net", "file": "model.py", "line": 7,
                           "modules": [""]})"},
      {"source_of_class", R"({"class": "Linear", "file": "torch/linear.py",
                           "line": 50, "of_torch": true, "modules": ["fc"]})"}};
  const CheckResult result = Check();
  ASSERT_EQ(result.modules.size(), 2u);
  EXPECT_EQ(result.modules[1].class_name, "Linear");
  EXPECT_EQ(result.modules[1].file, "model.py");
  EXPECT_EQ(result.modules[1].line, 7);
}

}  // namespace
}  // namespace ttrace::described_runs_test
