// Copies that are terms, with a division or only in a part of the tensor.

#include "src/diagnose/rules/sum_of_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "src/diagnose/testing/evidence_lab.h"

namespace ttrace::sum_of_copies_test {
namespace {

using testing::HasSubstr;

constexpr double kNoise = 1e-3;
constexpr double kBound = 2e-3;
const TensorId kReduced = Id("fc.weight", Role::kGradReduced);

std::vector<double> Truth() { return RandomValues(5, kCount); }

// Two copies: of the elements from `from` on they are terms of `factor` x the
// reference, before it they are right.
Lab Terms(double factor, size_t from = 0, bool strangers = false) {
  Lab lab(kReduced, kBound);
  lab.Reference(kReduced, kShape, Truth());
  lab.Candidate(
      kReduced, kShape, Noisy(Truth(), kNoise), Copies(2), [=](Piece* piece) {
        const auto own = RandomValues(50, kCount);
        const auto other = RandomValues(51, kCount);
        for (size_t i = from; i < own.size(); ++i) {
          const double rest =
              strangers ? other[i] : factor * piece->values[i] - own[i];
          piece->values[i] = piece->rank == 0 ? own[i] : rest;
        }
        return true;
      });
  return lab;
}

TEST(SumOfCopies, ADivisionMayBeMissingWithIt) {
  Lab lab = Terms(4);
  EXPECT_EQ(lab.Letters(), "PR");
  EXPECT_THAT(lab.First(), HasSubstr("their sum is 4"));
  EXPECT_THAT(lab.First(), HasSubstr("(tp = 2)^2"));
  EXPECT_THAT(lab.First(), HasSubstr("and a division are missing"));
}

TEST(SumOfCopies, ANumberThatNothingOfTheRunHasIsNoDivision) {
  EXPECT_FALSE(Terms(3.7).Ask(SumOfCopies));
}

TEST(SumOfCopies, OfWhatIsNotFiniteNothingIsMissing) {
  Lab lab(kReduced, kBound);
  lab.Reference(kReduced, kShape, Truth());
  lab.Candidate(kReduced, kShape, Truth(), Copies(2), [](Piece* piece) {
    if (piece->rank == 1) {
      piece->values[0] = std::numeric_limits<double>::quiet_NaN();
    }
    return true;
  });
  EXPECT_FALSE(lab.Ask(SumOfCopies));
  EXPECT_EQ(lab.Letters(), "NR");
}

TEST(SumOfCopies, WhereOnlyAPartWasNotReduced) {
  Lab lab = Terms(1, kCount / 2);
  EXPECT_EQ(lab.Letters(), "PR");
  EXPECT_THAT(lab.First(), HasSubstr("where they are wrong ("));
  EXPECT_THAT(lab.First(), HasSubstr("a sum over tp is missing"));
}

TEST(SumOfCopies, StrangersAreNoTermsInAPartEither) {
  EXPECT_FALSE(Terms(1, kCount / 2, true).Ask(SumOfCopies));
  // Nor is what is too little to tell.
  EXPECT_FALSE(Terms(1, kCount - 10).Ask(SumOfCopies));
}

}  // namespace
}  // namespace ttrace::sum_of_copies_test
