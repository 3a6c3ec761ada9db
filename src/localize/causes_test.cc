#include "src/localize/causes.h"

#include <gtest/gtest.h>

#include <string>

namespace ttrace::causes_test {
namespace {

TensorJudgement OutOfBounds(const std::string& fqn, int iteration) {
  TensorJudgement out;
  out.id.fqn = fqn;
  out.id.iteration = iteration;
  out.verdict = TensorVerdict::kDiverged;
  return out;
}

Culprit ShownBy(const std::vector<TensorId>& ids) {
  Culprit out;
  out.tensor = ids.front();
  out.shown_by = ids;
  return out;
}

std::string Words(const TensorCause& cause) {
  return cause.culprit < 0 ? "none"
                           : std::to_string(cause.culprit) + " " +
                                 std::string(ToString(cause.as));
}

TEST(CausesOf, TellsTheCulpritsTensorsFromThoseThatFollow) {
  std::vector<TensorJudgement> tensors = {
      OutOfBounds("a", 0), OutOfBounds("b", 0), OutOfBounds("c", 0),
      OutOfBounds("d", 0), OutOfBounds("e", 0), OutOfBounds("a", 1),
      OutOfBounds("c", 1)};
  tensors[4].verdict = TensorVerdict::kWithin;
  // In order: a is before every culprit, b the first, d shows it too.
  const std::vector<Culprit> culprits = {
      ShownBy({tensors[1].id, tensors[3].id}), ShownBy({tensors[2].id})};
  std::vector<std::string> words;
  for (const TensorCause& cause : CausesOf(tensors, culprits)) {
    words.push_back(Words(cause));
  }
  EXPECT_EQ(words,
            (std::vector<std::string>{"none", "0 first", "1 first", "0 same",
                                      "none", "0 downstream", "0 downstream"}));
}

TEST(CausesOf, WhatFollowsIsLaidToTheNearestBefore) {
  const std::vector<TensorJudgement> tensors = {
      OutOfBounds("a", 0), OutOfBounds("b", 0), OutOfBounds("c", 0)};
  const auto causes =
      CausesOf(tensors, {ShownBy({tensors[0].id}), ShownBy({tensors[1].id})});
  EXPECT_EQ(Words(causes[2]), "1 downstream");
}

// A setting of a step is no tensor's: what the step leaves follows from it, and
// so does what is made of that.
TEST(CausesOf, WhatARunSaysOfItselfIsBeforeWhatItsPartOfTheIterationMakes) {
  std::vector<TensorJudgement> tensors = {
      OutOfBounds("a", 0), OutOfBounds("b", 0), OutOfBounds("c", 0),
      OutOfBounds("a", 1)};
  tensors[1].id.role = Role::kGradReduced;
  tensors[1].id.pass = Pass::kBackward;
  tensors[2].id.role = Role::kParamUpdated;
  tensors[2].id.pass = Pass::kOptimizer;
  const auto words_of = [&](const std::vector<Culprit>& culprits) {
    std::vector<std::string> words;
    for (const TensorCause& cause : CausesOf(tensors, culprits)) {
      words.push_back(Words(cause));
    }
    return words;
  };
  Culprit setting;
  setting.tensor = {"lr", Role::kParamUpdated, 0, 0, "", Pass::kOptimizer};
  setting.found_by = {"settings"};
  using List = std::vector<std::string>;
  EXPECT_EQ(words_of({setting}),
            (List{"none", "none", "0 downstream", "0 downstream"}));
  Culprit kept = setting;
  kept.tensor = {"w", Role::kGradLocal, 0, 0, "", Pass::kBackward};
  kept.found_by = {"states"};
  EXPECT_EQ(words_of({kept, setting}),
            (List{"none", "0 downstream", "1 downstream", "0 downstream"}));
  setting.found_by = {"masks"};
  EXPECT_EQ(words_of({setting}), (List{"none", "none", "none", "none"}));
}

TEST(CausesOf, WithoutCulpritsNothingIsSaid) {
  const auto causes = CausesOf({OutOfBounds("a", 0)}, {});
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(Words(causes[0]), "none");
}

}  // namespace
}  // namespace ttrace::causes_test
