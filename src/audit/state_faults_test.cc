#include "src/audit/state_faults.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace::state_faults_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Note Found(int rank, int iteration, const std::string& changed,
           const std::string& states = R"("exp_avg","updated")") {
  return {rank, "found_states",
          fmt::format(R"({{"iteration":{},"states":[{}],"changed":[{}]}})",
                      iteration, states, changed)};
}

std::string Changed(const std::string& fqn, const std::string& arg, int differs,
                    double factor = 2, double rest = 1) {
  return fmt::format(R"({{"fqn":"{}","arg":"{}","sampled":64,"differs":{},)"
                     R"("factor":{},"rest":{}}})",
                     fqn, arg, differs, factor, rest);
}

StateFaults Compare(const std::vector<Note>& reference,
                    const std::vector<Note>& candidate) {
  return FindStateFaults(ReadStateChanges(reference),
                         ReadStateChanges(candidate));
}

TEST(StateFaults, NothingIsChangedInEither) {
  const auto found = Compare({Found(0, 1, "")}, {Found(0, 1, "")});
  EXPECT_THAT(found.culprits, IsEmpty());
  EXPECT_THAT(found.open, IsEmpty());
}

TEST(StateFaults, WhatTheCandidateAloneChangesIsAFaultOfAllRanksThatDid) {
  const auto found = Compare(
      {Found(0, 1, "")},
      {Found(0, 1,
             Changed("a", "updated", 64, 0.999, 1e-7) + "," +
                 Changed("b", "updated", 60, 0.999000001, 1e-7)),
       Found(1, 1, Changed("a", "updated", 64, 0.999, 1e-7)), Found(2, 1, "")});
  ASSERT_EQ(found.culprits.size(), 1);
  const Culprit& culprit = found.culprits.front();
  EXPECT_EQ(culprit.fqn, "a");
  EXPECT_EQ(culprit.iteration, 0);
  EXPECT_EQ(culprit.tensor.role, Role::kParamUpdated);
  EXPECT_EQ(culprit.stage, Stage::kOptimizer);
  EXPECT_THAT(culprit.ranks, ElementsAre(0, 1));
  EXPECT_EQ(culprit.affected.count, 2);
  EXPECT_EQ(culprit.classes.front().bug_class, BugClass::kChangedBetweenSteps);
  EXPECT_THAT(culprit.found_by, ElementsAre("states"));
  EXPECT_EQ(culprit.classes.front().evidence,
            "the parameter itself of 2 parameters is not, in iteration 1, what "
            "the step of iteration 0 left in the candidate (188 of 192 sampled "
            "values differ, times 0.999); nothing changed it in the reference");
  EXPECT_THAT(found.open, IsEmpty());
}

// Bits are compared by a digest, and a few values beside.
TEST(StateFaults, AChangeThatNoSampledValueShowsIsSaidToBeOne) {
  const auto words = [](const std::string& changed) {
    const StateFaults found =
        Compare({Found(0, 1, "")}, {Found(0, 1, changed)});
    return found.open.empty() ? "" : found.open.front();
  };
  EXPECT_THAT(words(Changed("a", "updated", 0, 1, 0)),
              HasSubstr("left in the candidate (compared by digest: what "
                        "changed is none of the 64 values that were sampled); "
                        "nothing"));
  EXPECT_THAT(words(R"({"fqn":"a","arg":"updated","sampled":0,"differs":0})"),
              HasSubstr("left in the candidate (compared by digest); nothing"));
}

TEST(StateFaults, AWeightThatIsChangedBeforeTheStepIsOfThatStep) {
  const auto found =
      Compare({Found(0, 1, "", R"("used")")},
              {Found(0, 1, Changed("a", "used", 64), R"("used")")});
  ASSERT_EQ(found.culprits.size(), 1);
  const Culprit& culprit = found.culprits.front();
  EXPECT_EQ(culprit.iteration, 1);
  EXPECT_EQ(culprit.tensor.role, Role::kParamUpdated);
  EXPECT_THAT(culprit.where, HasSubstr("before it"));
  EXPECT_THAT(culprit.classes.front().evidence,
              HasSubstr("is not, when the step of iteration 1 begins, what its "
                        "forward began with in the candidate"));
}

Note FoundGradients(int rank, int iteration, const std::string& kept) {
  return {rank, "found_gradients",
          fmt::format(R"({{"iteration":{},"parameters":3,"kept":[{}]}})",
                      iteration, kept)};
}

TEST(StateFaults, GradientsThatOneSideAloneDoesNotEmpty) {
  const std::vector<Note> empty = {FoundGradients(0, 0, ""),
                                   FoundGradients(0, 1, "")};
  const std::vector<Note> kept = {FoundGradients(0, 0, ""),
                                  FoundGradients(0, 1, R"("a","b")"),
                                  FoundGradients(1, 1, R"("b")")};
  const auto found = Compare(empty, kept);
  EXPECT_THAT(found.culprits, IsEmpty());
  ASSERT_EQ(found.gradients.size(), 1);
  const Culprit& culprit = found.gradients.front();
  EXPECT_EQ(culprit.fqn, "a");
  EXPECT_EQ(culprit.iteration, 1);
  EXPECT_EQ(culprit.direction, Direction::kBackward);
  EXPECT_THAT(culprit.ranks, ElementsAre(0, 1));
  EXPECT_EQ(culprit.affected.count, 2);
  EXPECT_EQ(culprit.affected.of, 3);
  EXPECT_EQ(culprit.classes.front().bug_class, BugClass::kStaleValue);
  EXPECT_EQ(culprit.classes.front().evidence,
            "in the candidate, the backward of iteration 1 adds to gradients "
            "of 2 of 3 parameters that are not empty: zero_grad() was not "
            "called, or does not reach them; in the reference they are");
  EXPECT_THAT(Compare(kept, empty).gradients.front().classes.front().evidence,
              HasSubstr("in the reference, the backward of iteration 1"));
  const std::set<std::pair<int, std::string>> of_both = {{1, "a"}, {1, "b"}};
  EXPECT_EQ(found.kept, of_both);
  EXPECT_EQ(Compare(kept, empty).kept, of_both);
  EXPECT_THAT(Compare(kept, kept).kept, IsEmpty());
  EXPECT_THAT(Compare({FoundGradients(0, 0, "")}, kept).kept, IsEmpty());
  // What both do, or one side did not look at, is no fault.
  EXPECT_THAT(Compare(kept, kept).gradients, IsEmpty());
  EXPECT_THAT(Compare({FoundGradients(0, 0, "")}, kept).gradients, IsEmpty());
  EXPECT_THAT(FindStateFaults(ReadStateChanges(empty), ReadStateChanges(kept),
                              IterationRange{0, 1})
                  .gradients,
              IsEmpty());
  EXPECT_EQ(ReadStateChanges({{0, "found_gradients", "[]"}}).malformed, 1);
}

TEST(StateFaults, AStepThatIsMadeTwiceIsSaid) {
  const Note again = {0, "second_step", R"({"iteration":0})"};
  const auto found = Compare({Found(0, 1, "")},
                             {again, Found(0, 1, Changed("a", "updated", 64))});
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_THAT(found.culprits.front().classes.front().evidence,
              HasSubstr("nothing changed it in the reference; the candidate "
                        "calls step() again without a forward in between"));
  EXPECT_EQ(ReadStateChanges({{0, "second_step", "{}"}}).malformed, 1);
}

TEST(StateFaults, SoIsWhatTheReferenceAloneChanges) {
  const auto found = Compare({Found(0, 1, Changed("a", "exp_avg", 64))},
                             {Found(0, 1, ""), Found(1, 1, "")});
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_EQ(found.culprits.front().tensor.role, Role::kOptimState);
  EXPECT_EQ(found.culprits.front().tensor.arg, "exp_avg");
  EXPECT_THAT(found.culprits.front().classes.front().evidence,
              HasSubstr("nothing changed it in the candidate"));
}

TEST(StateFaults, WhatBothChangeIsNone) {
  const auto found =
      Compare({Found(0, 1, Changed("a", "updated", 64))},
              {Found(0, 1, ""), Found(1, 1, Changed("a", "updated", 2))});
  EXPECT_THAT(found.culprits, IsEmpty());
  EXPECT_THAT(found.open, IsEmpty());
}

TEST(StateFaults, AFewValuesAreNotJudged) {
  const auto found =
      Compare({Found(0, 1, "")}, {Found(0, 1, Changed("a", "updated", 31))});
  EXPECT_THAT(found.culprits, IsEmpty());
  EXPECT_THAT(found.open, ElementsAre(HasSubstr("31 of 64 sampled values")));
}

TEST(StateFaults, AFewParametersOfFewValuesAreNotJudgedAndCountsAre) {
  const std::string one =
      R"({"fqn":"scale","arg":"updated","sampled":1,"differs":1})";
  const auto found = Compare({Found(0, 1, "")}, {Found(0, 1, one)});
  EXPECT_THAT(found.culprits, IsEmpty());
  EXPECT_EQ(found.open.size(), 1);
  const auto with_others =
      Compare({Found(0, 1, "")},
              {Found(0, 1, one + "," + Changed("a", "updated", 64))});
  ASSERT_EQ(with_others.culprits.size(), 1);
  EXPECT_EQ(with_others.culprits.front().affected.count, 2);
  EXPECT_THAT(with_others.open, IsEmpty());
  const std::string count =
      R"({"fqn":"a","arg":"step","sampled":1,"differs":1})";
  EXPECT_EQ(
      Compare({Found(0, 1, "", R"("step")")}, {Found(0, 1, count, R"("step")")})
          .culprits.size(),
      1);
}

TEST(StateFaults, ACopyIsSaidWithItsMaster) {
  const auto found = Compare(
      {Found(0, 1, "", R"("master","updated")")},
      {Found(0, 1,
             Changed("a", "master", 64) + "," + Changed("a", "updated", 40) +
                 "," + Changed("b", "master", 64) + "," +
                 Changed("b", "updated", 2),
             R"("master","updated")")});
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_THAT(found.culprits.front().classes.front().evidence,
              HasSubstr("the master copy of 2 parameters"));
  EXPECT_THAT(found.open, IsEmpty());
}

TEST(StateFaults, WhatTheOtherDidNotLookAtIsNoFault) {
  const std::vector<Note> changed = {Found(0, 1, Changed("a", "exp_avg", 64))};
  EXPECT_THAT(Compare({}, changed).culprits, IsEmpty());
  EXPECT_THAT(Compare({Found(0, 2, "")}, changed).culprits, IsEmpty());
  EXPECT_THAT(Compare({Found(0, 1, "", R"("updated")")}, changed).culprits,
              IsEmpty());
}

TEST(StateFaults, OnceForAllIterations) {
  const auto found = Compare({Found(0, 1, ""), Found(0, 2, "")},
                             {Found(0, 1, Changed("a", "exp_avg", 64)),
                              Found(0, 2, Changed("a", "exp_avg", 64))});
  EXPECT_EQ(found.culprits.size(), 1);
}

TEST(StateFaults, AFaultIsSaidAfterWhatIsOpen) {
  const auto found = Compare({Found(0, 1, ""), Found(0, 2, "")},
                             {Found(0, 1, Changed("a", "exp_avg", 3)),
                              Found(0, 2, Changed("a", "exp_avg", 64))});
  EXPECT_EQ(found.open.size(), 1);
  ASSERT_EQ(found.culprits.size(), 1);
  EXPECT_EQ(found.culprits.front().iteration, 1);
}

TEST(StateFaults, OnlyOfIterationsThatAreAsked) {
  const StateChanges kept = ReadStateChanges({Found(0, 1, "")});
  const StateChanges changed =
      ReadStateChanges({Found(0, 1, Changed("a", "exp_avg", 64))});
  EXPECT_EQ(
      FindStateFaults(kept, changed, IterationRange{0, 1}).culprits.size(), 1);
  EXPECT_THAT(FindStateFaults(kept, changed, IterationRange{1, 2}).culprits,
              IsEmpty());
}

TEST(StateFaults, NotesOfOthersAreCountedAndIgnored) {
  for (const char* json : {"", "[]", "{}", R"({"iteration":1,"changed":[3]})",
                           R"({"iteration":"1","changed":[]})"}) {
    const StateChanges read = ReadStateChanges({{0, "found_states", json}});
    EXPECT_EQ(read.malformed, 1) << json;
  }
}

TEST(StateFaults, AFactorNeedsToExplainTheChange) {
  const auto factor = [](double factor, double rest) {
    const StateChanges read = ReadStateChanges(
        {Found(0, 1, Changed("a", "exp_avg", 64, factor, rest))});
    return read.changed.begin()->second.factor;
  };
  EXPECT_EQ(factor(0.5, 0.001), 0.5);
  EXPECT_EQ(factor(0.999, 0.001), std::nullopt);
  EXPECT_EQ(factor(1, 0.1), std::nullopt);
}

}  // namespace
}  // namespace ttrace::state_faults_test
