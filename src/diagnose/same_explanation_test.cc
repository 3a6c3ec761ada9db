#include "src/diagnose/same_explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace {
namespace {

using ::testing::ElementsAre;

Culprit Make(const std::string& fqn, Role role, const std::string& letter,
             double value = 1) {
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
  if (!letter.empty()) out.classes.push_back({letter, "evidence", value});
  return out;
}

TEST(JoinSameExplanation, JoinsParametersWithTheSameClass) {
  std::vector<Culprit> culprits = {Make("a", Role::kGradLocal, "S"),
                                   Make("bb", Role::kGradLocal, "S"),
                                   Make("ccc", Role::kGradLocal, "M")};
  culprits[1].found_by = {"dataflow"};
  EXPECT_EQ(JoinSameExplanation(&culprits), 1);
  ASSERT_EQ(culprits.size(), 2u);
  EXPECT_EQ(culprits[0].fqn, "a");
  EXPECT_EQ(culprits[0].affected.count, 4);
  EXPECT_THAT(culprits[0].affected.examples, ElementsAre("a", "bb"));
  EXPECT_THAT(culprits[0].ranks, ElementsAre(1, 2));
  EXPECT_THAT(culprits[0].found_by, ElementsAre("dataflow", "isolation"));
  EXPECT_EQ(culprits[1].fqn, "ccc");
}

// Two slices that are taken wrongly are one fault only in the same code.
TEST(JoinSameExplanation, WhatBelongsToAPlaceIsJoinedInThatPlaceOnly) {
  std::vector<Culprit> culprits = {
      Make("layers.0.fc1.weight", Role::kGradLocal, "W"),
      Make("layers.0.fc2.weight", Role::kGradLocal, "W"),
      Make("layers.1.fc1.weight", Role::kGradLocal, "W")};
  EXPECT_EQ(JoinSameExplanation(&culprits), 1);
  ASSERT_EQ(culprits.size(), 2u);
  EXPECT_EQ(culprits[1].fqn, "layers.0.fc2.weight");
}

// One step handles all gradients, so that all are laid to it at first.
class ExplainEachNameTest : public testing::Test {
 protected:
  // `letters`: of each name, with a factor; empty: nothing explains it.
  static std::vector<Culprit> Explain(
      const std::vector<std::pair<std::string, double>>& letters) {
    Culprit all = Make("a", Role::kGradReduced, "");
    all.affected.count = 0;
    for (size_t i = 0; i < letters.size(); ++i) {
      TensorId id = all.tensor;
      id.fqn = std::string(1, static_cast<char>('a' + i));
      all.affected.names.push_back({id, 3, 2, {static_cast<int>(i)}});
      all.affected.count += 3;
    }
    return ExplainEachName(all, [&](Culprit* culprit) {
      const auto& [letter, value] =
          letters[static_cast<size_t>(culprit->fqn[0] - 'a')];
      if (!letter.empty()) culprit->classes = {{letter, "evidence", value}};
    });
  }
};

TEST_F(ExplainEachNameTest, OtherFactorsAreOtherCulprits) {
  const auto found =
      Explain({{"K", 2}, {"K", 0.5}, {"", 0}, {"K", 2.001}, {"K", 0.501}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0].affected.examples, ElementsAre("a", "c", "d"));
  EXPECT_EQ(found[0].affected.count, 9);
  EXPECT_THAT(found[0].ranks, ElementsAre(0, 2, 3));
  EXPECT_EQ(found[1].fqn, "b");
  EXPECT_EQ(found[1].tensor.fqn, "b");
  EXPECT_EQ(found[1].affected.count, 6);
  EXPECT_THAT(found[1].ranks, ElementsAre(1, 4));
}

TEST_F(ExplainEachNameTest, WhatNothingTellsApartStaysTogether) {
  EXPECT_EQ(Explain({{"P", 1}, {"P", 2}, {"", 0}}).size(), 1u);
  EXPECT_EQ(Explain({{"", 0}, {"P", 2}, {"K", 2}}).size(), 1u);
  EXPECT_EQ(Explain({{"P", 1}, {"S", 1}}).size(), 2u);
}

TEST(JoinSameExplanation, WhatIsCountedIsNotCountedAgain) {
  std::vector<Culprit> culprits = {Make("a", Role::kGradLocal, "S"),
                                   Make("b", Role::kGradLocal, "S")};
  culprits[0].affected.count = 10;
  culprits[0].affected.examples = {"a", "b"};
  JoinSameExplanation(&culprits);
  EXPECT_EQ(culprits[0].affected.count, 10);
}

TEST(JoinSameExplanation, OtherFactorsAreOtherCauses) {
  std::vector<Culprit> culprits = {Make("a", Role::kGradLocal, "K", 2),
                                   Make("b", Role::kGradLocal, "K", 2.001),
                                   Make("c", Role::kGradLocal, "K", 4)};
  JoinSameExplanation(&culprits);
  ASSERT_EQ(culprits.size(), 2u);
  EXPECT_EQ(culprits[1].fqn, "c");
}

TEST(JoinSameExplanation, ModulesAndTheUnexplainedStayApart) {
  std::vector<Culprit> culprits = {
      Make("a", Role::kGradInput, "P"),   Make("b", Role::kGradInput, "P"),
      Make("c", Role::kGradLocal, ""),    Make("d", Role::kGradLocal, ""),
      Make("e", Role::kGradReduced, "S"), Make("f", Role::kGradLocal, "S")};
  Culprit later = Make("g", Role::kGradLocal, "S");
  later.iteration = 1;
  culprits.push_back(later);
  EXPECT_EQ(JoinSameExplanation(&culprits), 0);
  EXPECT_EQ(culprits.size(), 7u);
}

}  // namespace
}  // namespace ttrace
