#include "src/diagnose/same_explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace ttrace::same_explanation_test {
namespace {

using ::testing::ElementsAre;

Culprit Make(const std::string& fqn, Role role,
             std::optional<BugClass> bug_class, double value = 1) {
  Culprit out;
  out.fqn = fqn;
  out.tensor.fqn = fqn;
  out.tensor.role = role;
  out.direction = Direction::kBackward;
  out.ranks = {static_cast<int>(fqn.size())};
  out.found_by = {"isolation"};
  out.affected.count = 2;
  out.affected.of = 10;
  out.affected.examples = {fqn};
  out.shown_by = {out.tensor};
  if (bug_class) out.classes.push_back({*bug_class, "evidence", value});
  return out;
}

std::vector<std::string> Shown(const Culprit& culprit) {
  std::vector<std::string> out;
  for (const TensorId& id : culprit.shown_by) out.push_back(id.fqn);
  return out;
}

TEST(JoinSameExplanation, JoinsParametersWithTheSameClass) {
  std::vector<Culprit> culprits = {
      Make("a", Role::kGradLocal, BugClass::kStaleValue),
      Make("bb", Role::kGradLocal, BugClass::kStaleValue),
      Make("ccc", Role::kGradLocal, BugClass::kMissingOrZero)};
  culprits[1].found_by = {"dataflow"};
  EXPECT_EQ(JoinSameExplanation(&culprits), 1);
  ASSERT_EQ(culprits.size(), 2u);
  EXPECT_EQ(culprits[0].fqn, "a");
  EXPECT_EQ(culprits[0].affected.count, 4);
  EXPECT_THAT(culprits[0].affected.examples, ElementsAre("a", "bb"));
  EXPECT_THAT(culprits[0].ranks, ElementsAre(1, 2));
  EXPECT_THAT(culprits[0].found_by, ElementsAre("dataflow", "isolation"));
  EXPECT_EQ(culprits[1].fqn, "ccc");
  EXPECT_THAT(Shown(culprits[0]), ElementsAre("a", "bb"));
}

// Two slices that are taken wrongly are one fault only in the same code.
TEST(JoinSameExplanation, WhatBelongsToAPlaceIsJoinedInThatPlaceOnly) {
  std::vector<Culprit> culprits = {
      Make("layers.0.fc1.weight", Role::kGradLocal, BugClass::kWrongSlice),
      Make("layers.0.fc2.weight", Role::kGradLocal, BugClass::kWrongSlice),
      Make("layers.1.fc1.weight", Role::kGradLocal, BugClass::kWrongSlice)};
  EXPECT_EQ(JoinSameExplanation(&culprits), 1);
  ASSERT_EQ(culprits.size(), 2u);
  EXPECT_EQ(culprits[1].fqn, "layers.0.fc2.weight");
}

// One step handles all gradients, so that all are laid to it at first.
class ExplainEachNameTest : public testing::Test {
 protected:
  // `classes`: of each name, with a factor; without one nothing explains it.
  static std::vector<Culprit> Explain(
      const std::vector<std::pair<std::optional<BugClass>, double>>& classes) {
    Culprit all = Make("a", Role::kGradReduced, std::nullopt);
    all.affected.count = 0;
    for (size_t i = 0; i < classes.size(); ++i) {
      TensorId id = all.tensor;
      id.fqn = std::string(1, static_cast<char>('a' + i));
      all.affected.names.push_back({id, 3, 2, {static_cast<int>(i)}});
      all.affected.count += 3;
      if (i > 0) all.shown_by.push_back(id);
    }
    return ExplainEachName(all, [&](Culprit* culprit) {
      const auto& [bug_class, value] =
          classes[static_cast<size_t>(culprit->fqn[0] - 'a')];
      if (bug_class) culprit->classes = {{*bug_class, "evidence", value}};
    });
  }
};

TEST_F(ExplainEachNameTest, OtherFactorsAreOtherCulprits) {
  const auto found = Explain({{BugClass::kConstantFactor, 2},
                              {BugClass::kConstantFactor, 0.5},
                              {std::nullopt, 0},
                              {BugClass::kConstantFactor, 2.001},
                              {BugClass::kConstantFactor, 0.501}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0].affected.examples, ElementsAre("a", "c", "d"));
  EXPECT_EQ(found[0].affected.count, 9);
  EXPECT_THAT(found[0].ranks, ElementsAre(0, 2, 3));
  EXPECT_THAT(Shown(found[0]), ElementsAre("a", "c", "d"));
  EXPECT_EQ(found[1].fqn, "b");
  EXPECT_EQ(found[1].tensor.fqn, "b");
  EXPECT_THAT(Shown(found[1]), ElementsAre("b", "e"));
  EXPECT_EQ(found[1].affected.count, 6);
  EXPECT_THAT(found[1].ranks, ElementsAre(1, 4));
}

TEST_F(ExplainEachNameTest, WhatNothingTellsApartStaysTogether) {
  EXPECT_EQ(Explain({{BugClass::kMissingPartialSum, 1},
                     {BugClass::kMissingPartialSum, 2},
                     {std::nullopt, 0}})
                .size(),
            1u);
  EXPECT_EQ(Explain({{std::nullopt, 0},
                     {BugClass::kMissingPartialSum, 2},
                     {BugClass::kConstantFactor, 2}})
                .size(),
            1u);
  EXPECT_EQ(
      Explain({{BugClass::kMissingPartialSum, 1}, {BugClass::kStaleValue, 1}})
          .size(),
      2u);
}

TEST(JoinSameExplanation, WhatIsCountedIsNotCountedAgain) {
  std::vector<Culprit> culprits = {
      Make("a", Role::kGradLocal, BugClass::kStaleValue),
      Make("b", Role::kGradLocal, BugClass::kStaleValue)};
  culprits[0].affected.count = 10;
  culprits[0].affected.examples = {"a", "b"};
  JoinSameExplanation(&culprits);
  EXPECT_EQ(culprits[0].affected.count, 10);
}

TEST(JoinSameExplanation, OtherFactorsAreOtherCauses) {
  std::vector<Culprit> culprits = {
      Make("a", Role::kGradLocal, BugClass::kConstantFactor, 2),
      Make("b", Role::kGradLocal, BugClass::kConstantFactor, 2.001),
      Make("c", Role::kGradLocal, BugClass::kConstantFactor, 4)};
  JoinSameExplanation(&culprits);
  ASSERT_EQ(culprits.size(), 2u);
  EXPECT_EQ(culprits[1].fqn, "c");
}

TEST(JoinSameExplanation, ModulesAndTheUnexplainedStayApart) {
  std::vector<Culprit> culprits = {
      Make("a", Role::kGradInput, BugClass::kMissingPartialSum),
      Make("b", Role::kGradInput, BugClass::kMissingPartialSum),
      Make("c", Role::kGradLocal, std::nullopt),
      Make("d", Role::kGradLocal, std::nullopt),
      Make("e", Role::kGradReduced, BugClass::kStaleValue),
      Make("f", Role::kGradLocal, BugClass::kStaleValue)};
  Culprit later = Make("g", Role::kGradLocal, BugClass::kStaleValue);
  later.iteration = 1;
  culprits.push_back(later);
  EXPECT_EQ(JoinSameExplanation(&culprits), 0);
  EXPECT_EQ(culprits.size(), 7u);
}

}  // namespace
}  // namespace ttrace::same_explanation_test
