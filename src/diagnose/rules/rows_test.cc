// Rows that have an order or a factor of their own: where that must be said,
// and what lies just beside.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/diagnose/row_pairs.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/testing/evidence_lab.h"

namespace ttrace::rows_test {
namespace {

using testing::HasSubstr;

const TensorId kProbs = Id("router", Role::kOutput);
constexpr size_t kRows = 64;
constexpr size_t kWidth = 4;
constexpr double kBound = 2e-6;
constexpr double kNoise = 1e-6;

// Of each token's row two are not zero and add up to one, as a router's.
std::vector<double> Probabilities() {
  std::vector<double> out(kRows * kWidth, 0);
  const auto random = RandomValues(3, kRows);
  for (size_t row = 0; row < kRows; ++row) {
    const double p = 1 / (1 + std::exp(-random[row]));
    out[row * kWidth + row % 3] = p;
    out[row * kWidth + row % 3 + 1] = 1 - p;
  }
  return out;
}

Lab Make(const std::vector<double>& reference,
         const std::vector<double>& candidate, double bound = kBound) {
  Lab lab(kProbs, bound);
  const Shape shape = {static_cast<int64_t>(reference.size() / kWidth),
                       static_cast<int64_t>(kWidth)};
  lab.Reference(kProbs, shape, reference);
  lab.Candidate(kProbs, shape, Noisy(candidate, kNoise));
  return lab;
}

std::vector<double> Flipped(std::vector<double> values, size_t rows) {
  for (size_t row = 0; row < rows; ++row) {
    const size_t at = row * kWidth + row % 3;
    std::swap(values[at], values[at + 1]);
  }
  return values;
}

std::vector<double> Scaled(std::vector<double> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] *= 0.8 + 0.01 * static_cast<double>(i / kWidth);
  }
  return values;
}

TEST(ReorderedWithinRows, ProbabilitiesOfTheOtherExpertAreAPermutation) {
  Lab lab = Make(Probabilities(), Flipped(Probabilities(), kRows));
  EXPECT_EQ(lab.Letters(), "X");
  EXPECT_THAT(lab.First(), HasSubstr("64 of 64 rows"));
  EXPECT_THAT(lab.First(), HasSubstr("in another order"));
}

TEST(ReorderedWithinRows, FewRowsMayBeChance) {
  EXPECT_TRUE(Make(Probabilities(), Flipped(Probabilities(), 8))
                  .Ask(ReorderedWithinRows));
  // One bit for each row that it may call an exception, and 64.
  EXPECT_FALSE(Make(Probabilities(), Flipped(Probabilities(), 2))
                   .Ask(ReorderedWithinRows));
  // Values that are not further apart than their noise say nothing.
  EXPECT_FALSE(Make(Probabilities(), Flipped(Probabilities(), kRows), 0.02)
                   .Ask(ReorderedWithinRows));
}

TEST(ReorderedWithinRows, OneRowInFiveThatIsOtherwiseWrongIsTooMany) {
  auto candidate = Flipped(Probabilities(), kRows);
  for (size_t row = 0; row < kRows; row += 5) {
    candidate[row * kWidth + row % 3] += 0.3;
  }
  EXPECT_FALSE(Make(Probabilities(), candidate).Ask(ReorderedWithinRows));
}

TEST(FactorOfEachRow, ASumThatRowsAreNotDividedBy) {
  Lab lab = Make(Probabilities(), Scaled(Probabilities()));
  EXPECT_EQ(lab.Letters(), "K");
  EXPECT_THAT(lab.First(), HasSubstr("0.8 to 1.43"));
  EXPECT_THAT(lab.First(), HasSubstr("the reference's rows add up to 1 each, "
                                     "these to 0.8 to 1.43"));
  Lab other = Make(Scaled(Probabilities()), Probabilities());
  EXPECT_THAT(other.First(), HasSubstr("these rows add up to 1 each, the "
                                       "reference's to 0.8 to 1.43"));
}

TEST(FactorOfEachRow, SaysNothingOfSumsThatAreNoNormalisation) {
  const auto values = RandomValues(4, kRows * kWidth);
  Lab lab = Make(values, Scaled(values));
  EXPECT_EQ(lab.Letters(), "K");
  EXPECT_THAT(lab.First(), testing::Not(HasSubstr("add up")));
}

TEST(FactorOfEachRow, IsNoneWhereSomethingRemains) {
  auto rest = Scaled(Probabilities());
  for (size_t i = 0; i < rest.size(); i += kWidth) rest[i] += 1e-3;
  EXPECT_FALSE(Make(Probabilities(), rest).Ask(FactorOfEachRow));
  // Of one element each there is always a factor.
  std::vector<double> single(kRows * kWidth, 0);
  for (size_t row = 0; row < kRows; ++row) {
    single[row * kWidth] = RandomValues(6, kRows)[row];
  }
  EXPECT_FALSE(Make(single, Scaled(single)).Ask(FactorOfEachRow));
  // Two wrong rows of two elements are no 64 bits of evidence.
  auto few = Probabilities();
  for (size_t i = 0; i < 2 * kWidth; ++i)
    few[i] *= 1.2 + 0.1 * static_cast<double>(i / kWidth);
  EXPECT_FALSE(Make(Probabilities(), few).Ask(FactorOfEachRow));
}

TEST(FactorOfEachRow, LeavesOneFactorForAllToTheRuleBefore) {
  auto twice = Probabilities();
  for (double& value : twice) value *= 2;
  EXPECT_FALSE(Make(Probabilities(), twice).Ask(FactorOfEachRow));
  EXPECT_EQ(Make(Probabilities(), twice).Letters(), "K");
}

TEST(FactorOfEachRow, WhatIsZeroIsMissing) {
  const std::vector<double> zero(kRows * kWidth, 0);
  EXPECT_FALSE(Make(Probabilities(), zero).Ask(FactorOfEachRow));
}

TEST(RowPairs, OfOneDimensionThereAreNone) {
  Lab lab(kProbs, kBound);
  lab.Reference(kProbs, {64}, RandomValues(1, 64));
  lab.Candidate(kProbs, {64}, RandomValues(2, 64));
  const Evidence evidence = lab.Gather();
  EXPECT_FALSE(RowPairs::Of(ValueView(evidence)));
}

}  // namespace
}  // namespace ttrace::rows_test
