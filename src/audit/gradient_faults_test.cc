#include "src/audit/gradient_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace::gradient_faults_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Training {
  GradientsNotFound absent;
  std::map<std::tuple<int, int, std::string>, GradientNorm> norms;

  StepGradients gradients() const { return {&absent, &norms}; }
};

const ModulesThatRan kRan = {{0, "a"}, {0, "b"}, {1, "a"}, {1, "b"}};

// Of a.weight and b.weight, in two iterations.
Training Trains() {
  Training run;
  for (const int iteration : {0, 1}) {
    for (const char* fqn : {"a.weight", "b.weight"}) {
      run.norms[{0, iteration, fqn}] = {1, 1};
    }
  }
  return run;
}

Training Freezes(int iteration, const std::string& fqn) {
  Training run = Trains();
  for (const int rank : {0, 1}) {
    run.norms.erase({rank, iteration, fqn});
    run.absent[{iteration, fqn}].insert(rank);
  }
  return run;
}

std::vector<Culprit> Find(const Training& reference, const Training& candidate,
                          const ModulesThatRan& ran = kRan) {
  return FindAbsentGradients(reference.gradients(), candidate.gradients(), ran,
                             std::nullopt);
}

TEST(AbsentGradients, AreReadFromNotes) {
  const std::vector<Note> notes = {
      {1, "no_gradient", R"({"iteration":2,"parameters":["a","b"]})"},
      {0, "no_gradient", R"({"iteration":2,"parameters":["b"]})"},
      {0, "no_gradient", "[]"}};
  const GradientsNotFound found = ReadGradientsNotFound(notes);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_THAT(found.at({2, "b"}), ElementsAre(0, 1));
}

TEST(AbsentGradients, OfWhatTheOtherRunTrainsAreAFault) {
  const auto found = Find(Trains(), Freezes(1, "b.weight"));
  ASSERT_EQ(found.size(), 1U);
  const Culprit& culprit = found.front();
  EXPECT_EQ(culprit.fqn, "b.weight");
  EXPECT_EQ(culprit.iteration, 1);
  EXPECT_EQ(culprit.direction, Direction::kBackward);
  EXPECT_THAT(culprit.ranks, ElementsAre(0, 1));
  EXPECT_EQ(culprit.affected.count, 1);
  EXPECT_EQ(culprit.affected.of, 2);
  EXPECT_EQ(culprit.classes.front().bug_class, BugClass::kMissingOrZero);
  EXPECT_EQ(culprit.classes.front().evidence,
            "in the candidate, the step of iteration 1 finds no gradient "
            "(None) of 1 parameter, whose modules ran; in the reference it is "
            "not zero: frozen, detached, or not used");
  const auto other = Find(Freezes(0, "a.weight"), Trains());
  ASSERT_EQ(other.size(), 1U);
  EXPECT_THAT(other.front().classes.front().evidence,
              HasSubstr("in the reference, the step of iteration 0"));
  EXPECT_THAT(other.front().ranks, IsEmpty());
}

TEST(AbsentGradients, OfTheFirstIterationAreEnough) {
  Training candidate = Freezes(0, "a.weight");
  candidate.absent[{1, "a.weight"}] = {0};
  candidate.norms.erase({0, 1, "a.weight"});
  const auto found = Find(Trains(), candidate);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().iteration, 0);
  const auto later = FindAbsentGradients(
      Trains().gradients(), candidate.gradients(), kRan, IterationRange{1, 2});
  ASSERT_EQ(later.size(), 1U);
  EXPECT_EQ(later.front().iteration, 1);
}

TEST(AbsentGradients, AreNoFaultWhereNothingSaysSo) {
  const Training frozen = Freezes(1, "b.weight");
  EXPECT_THAT(Find(Trains(), Trains()), IsEmpty());
  EXPECT_THAT(Find(frozen, frozen), IsEmpty()) << "both";
  EXPECT_THAT(Find(Trains(), frozen, {{0, "b"}, {1, "a"}}), IsEmpty())
      << "its module did not run";
  Training zero = Trains();
  zero.norms[{0, 1, "b.weight"}] = {0, 0};
  EXPECT_THAT(Find(zero, frozen), IsEmpty()) << "nothing to train";
  Training another = frozen;
  another.norms[{1, 1, "b.weight"}] = {1, 1};
  EXPECT_THAT(Find(Trains(), another), IsEmpty()) << "a rank has it";
}

}  // namespace
}  // namespace ttrace::gradient_faults_test
