#include "src/diagnose/find_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/diagnose/testing/evidence_lab.h"

namespace ttrace::find_pattern_test {
namespace {

using testing::ElementsAre;

const TensorId kOut = Id("fc", Role::kOutput);

std::optional<ErrorPattern> Pattern(Lab* lab) {
  Evidence evidence = lab->Gather();
  evidence.regions =
      OrDie(CompareTensor(*evidence.reference, *evidence.candidate)).regions;
  return FindPattern(evidence);
}

TEST(FindPattern, ShowsTheBlocksAndTheRankThatAreWrong) {
  // Rank 1 holds the columns from 32 on; its last row is wrong.
  const Shape shape = {4, 64};
  const std::vector<double> values = RandomValues(3, 4 * 64);
  std::vector<double> wrong = values;
  for (size_t column = 32; column < 64; ++column) wrong[3 * 64 + column] += 2;
  Lab lab(kOut, 1e-3);
  lab.Reference(kOut, shape, values);
  lab.Candidate(kOut, shape, wrong, Parts(2, 1));
  const auto found = Pattern(&lab);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->row_dim, 0);
  EXPECT_EQ(found->column_dim, 1);
  EXPECT_THAT(found->rows, ElementsAre(0, 1, 2, 3, 4));
  ASSERT_EQ(found->columns.size(), 33u);
  EXPECT_EQ(found->columns[16], 32);
  ASSERT_EQ(found->errors.size(), 4u * 32u);
  double squares = 0;
  for (const double value : values) squares += value * value;
  const double rms = std::sqrt(squares / 256);
  for (size_t i = 0; i < found->errors.size(); ++i) {
    const bool is_wrong = i / 32 == 3 && i % 32 >= 16;
    EXPECT_NEAR(found->errors[i], is_wrong ? 2 / rms : 0, 1e-5) << i;
  }
  ASSERT_EQ(found->pieces.size(), 2u);
  EXPECT_EQ(found->pieces_of, 2);
  EXPECT_EQ(found->pieces[0].err, 0);
  EXPECT_GT(found->pieces[1].err, 0.1);
  EXPECT_THAT(found->pieces[1].ranks, ElementsAre(1));
  EXPECT_EQ(found->pieces[1].box, "[all, 32:64]");
  EXPECT_EQ(found->pieces[1].elements, 128);
  EXPECT_FALSE(found->sampled);
}

TEST(FindPattern, LooksAtTheWorstCopy) {
  const Shape shape = {8};
  const std::vector<double> values = RandomValues(3, 8);
  Lab lab(kOut, 1e-3);
  lab.Reference(kOut, shape, values);
  lab.Candidate(kOut, shape, values, Copies(2), [](Piece* piece) {
    if (piece->rank == 1) piece->values[5] += 1;
    return true;
  });
  const auto found = Pattern(&lab);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->row_dim, -1);
  ASSERT_EQ(found->errors.size(), 8u);
  EXPECT_EQ(found->errors[4], 0);
  EXPECT_GT(found->errors[5], 0);
}

TEST(FindPattern, WhatIsFiniteOnOneSideAloneIsInfinitelyWrong) {
  const Shape shape = {2, 4};
  const std::vector<double> values = RandomValues(3, 8);
  std::vector<double> wrong = values;
  wrong[6] = std::nan("");
  Lab lab(kOut, 1e-3);
  lab.Reference(kOut, shape, values);
  lab.Candidate(kOut, shape, wrong);
  const auto found = Pattern(&lab);
  ASSERT_TRUE(found);
  EXPECT_TRUE(std::isinf(found->errors[6]));
  EXPECT_EQ(found->errors[5], 0);
}

TEST(FindPattern, OfALargeTensorItReadsSomeRowsOfEachBlock) {
  const Shape shape = {34, 66'000};
  const std::vector<double> values(34 * 66'000, 1.0);
  std::vector<double> wrong = values;
  wrong[66'000] = 3;  // in the first row of the second block
  Lab lab(kOut, 1e-3);
  lab.Reference(kOut, shape, values);
  lab.Candidate(kOut, shape, wrong);
  const auto found = Pattern(&lab);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->sampled);
  EXPECT_GT(found->errors[32], 0);
  EXPECT_EQ(found->errors[0], 0);
}

TEST(FindPattern, NoneWithoutValuesOrOfANumber) {
  const std::vector<double> values = RandomValues(3, 4096);
  Lab lab(kOut, 1e-3);
  lab.Reference(kOut, {64, 64}, values);
  lab.summarized = 256;
  lab.Candidate(kOut, {64, 64}, Noisy(values, 0.5));
  EXPECT_FALSE(Pattern(&lab));

  Lab number(kOut, 1e-3);
  number.Reference(kOut, {}, {1});
  number.Candidate(kOut, {}, {2});
  EXPECT_FALSE(Pattern(&number));
}

}  // namespace
}  // namespace ttrace::find_pattern_test
