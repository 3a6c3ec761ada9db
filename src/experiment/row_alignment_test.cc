#include "src/experiment/row_alignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ttrace::row_alignment_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two-dimensional: `rows` of the same length.
FedTensor Rows(const std::vector<std::vector<int64_t>>& rows) {
  FedTensor out;
  out.rows = static_cast<int64_t>(rows.size());
  out.width = static_cast<int64_t>(rows.front().size());
  std::vector<int64_t> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  out.digests =
      DigestRows(std::as_bytes(std::span(all)), rows.size(), sizeof(int64_t));
  return out;
}

FedTensor Relative(FedTensor tensor) {
  tensor.is_relative = true;
  return tensor;
}

FedPart Part(int rank, const std::map<FedName, FedTensor>& tensors) {
  FedPart part;
  part.rank = rank;
  part.rows = tensors.begin()->second.rows;
  part.tensors = tensors;
  return part;
}

const FedName kX = {"x", 0};
const FedName kY = {"y", 0};

// One number a row.
FedTensor Labels(const std::vector<int64_t>& rows) {
  std::vector<std::vector<int64_t>> each;
  for (const int64_t row : rows) each.push_back({row});
  return Rows(each);
}

RowsOfCall MatchLabels(const std::vector<int64_t>& reference,
                       const std::vector<int64_t>& candidate) {
  return MatchCall({{0, Part(0, {{FedName("x", 1), Labels(reference)}})}},
                   {{0, Part(0, {{FedName("x", 1), Labels(candidate)}})}});
}

TEST(MatchCall, OfEqualRowsInAnotherOrderTheOrderIsNotKnown) {
  const RowsOfCall found = MatchLabels({0, 0, 1, 1}, {1, 0, 1, 0});
  EXPECT_THAT(found.spaces, IsEmpty());
  EXPECT_THAT(found.foreign, IsEmpty());
  EXPECT_THAT(found.repeated.rows, IsEmpty());
  // In the reference's order nothing is asked.
  const RowsOfCall same = MatchLabels({0, 0, 1, 1}, {0, 0, 1, 1});
  ASSERT_EQ(same.spaces.size(), 1U);
  EXPECT_FALSE(same.spaces.front().map);
}

TEST(MatchCall, FewEqualRowsAreNoDoubtOfTheOthers) {
  // Three of four are told apart.
  const RowsOfCall found = MatchLabels({5, 6, 5, 7}, {7, 5, 6, 5});
  ASSERT_EQ(found.spaces.size(), 1U);
  EXPECT_THAT(found.spaces.front().map->to_reference, ElementsAre(3, 0, 1, 2));
}

TEST(MatchCall, LongRunsTellEqualRowsApart) {
  // Sentences of few words: eight and eight, the second first.
  const std::vector<int64_t> theirs = {1, 1, 2, 1, 2, 2, 1, 4,
                                       3, 2, 2, 1, 1, 1, 2, 5};
  const std::vector<int64_t> own = {3, 2, 2, 1, 1, 1, 2, 5,
                                    1, 1, 2, 1, 2, 2, 1, 4};
  const RowsOfCall found = MatchLabels(theirs, own);
  ASSERT_EQ(found.spaces.size(), 1U);
  EXPECT_THAT(
      found.spaces.front().map->to_reference,
      ElementsAre(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(MatchCall, AWordThatEndsEverySentenceMayBeOfTheOneBeforeOrBehind) {
  // Dealt in turn, 9 ends each: what follows the first sentence's 9 here
  // follows another one there.
  EXPECT_THAT(MatchLabels({1, 2, 3, 9, 4, 5, 6, 9, 7, 8, 10, 9, 11, 12, 13, 9},
                          {1, 2, 3, 9, 7, 8, 10, 9, 4, 5, 6, 9, 11, 12, 13, 9})
                  .spaces,
              IsEmpty());
  // A first word as well.
  EXPECT_THAT(MatchLabels({9, 1, 2, 3, 9, 4, 5, 6, 9, 7, 8, 10, 9, 11, 12, 13},
                          {9, 1, 2, 3, 9, 7, 8, 10, 9, 4, 5, 6, 9, 11, 12, 13})
                  .spaces,
              IsEmpty());
  // Where the runs are whole there is no such word between them.
  const RowsOfCall found =
      MatchLabels({1, 9, 2, 9, 3, 4, 9, 5}, {3, 4, 9, 5, 1, 9, 2, 9});
  ASSERT_EQ(found.spaces.size(), 1U);
  EXPECT_THAT(found.spaces.front().map->to_reference,
              ElementsAre(4, 5, 6, 7, 0, 1, 2, 3));
}

TEST(MatchCall, RowsThatWereDealtInTurnAreFound) {
  const RowsOfCall found =
      MatchCall({{0, Part(0, {{kX, Rows({{1}, {2}, {3}, {4}})}})}},
                {{0, Part(0, {{kX, Rows({{1}, {3}})}})},
                 {1, Part(1, {{kX, Rows({{2}, {4}})}})}});
  ASSERT_EQ(found.spaces.size(), 1U);
  EXPECT_THAT(found.spaces.front().map->to_reference, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(found.foreign, IsEmpty());
  EXPECT_THAT(found.repeated.rows, IsEmpty());
}

TEST(MatchCall, RowsInTheReferencesOrderNeedNoMap) {
  const RowsOfCall found =
      MatchCall({{0, Part(0, {{kX, Rows({{1}, {2}, {3}})}})}},
                {{0, Part(0, {{kX, Rows({{1}, {2}})}})},
                 {1, Part(1, {{kX, Rows({{3}})}})}});
  ASSERT_EQ(found.spaces.size(), 1U);
  EXPECT_FALSE(found.spaces.front().map);
  EXPECT_EQ(found.spaces.front().total, 3);
  EXPECT_THAT(found.spaces.front().candidate,
              ElementsAre(std::pair(0, 2), std::pair(1, 1)));
}

TEST(MatchCall, AllTensorsOfARowTellItApart) {
  // Equal inputs with other targets.
  const RowsOfCall found = MatchCall(
      {{0, Part(0, {{kX, Rows({{1}, {1}})}, {kY, Rows({{5}, {6}})}})}},
      {{0, Part(0, {{kX, Rows({{1}, {1}})}, {kY, Rows({{6}, {5}})}})}});
  EXPECT_THAT(found.spaces.front().map->to_reference, ElementsAre(1, 0));
  EXPECT_THAT(found.mixed, IsEmpty());
}

TEST(MatchCall, TargetsBesideOtherInputsAreMixed) {
  const RowsOfCall found = MatchCall(
      {{0,
        Part(0, {{kX, Rows({{1}, {2}, {3}})}, {kY, Rows({{7}, {8}, {7}})}})}},
      {{0,
        Part(0, {{kX, Rows({{1}, {2}, {3}})}, {kY, Rows({{7}, {7}, {8}})}})}});
  EXPECT_THAT(found.mixed, ElementsAre("y"));
  EXPECT_FALSE(found.spaces.front().map);
}

TEST(MatchCall, ValuesOfNoRowOfTheReferenceAreOther) {
  const RowsOfCall found = MatchCall(
      {{0, Part(0, {{kX, Rows({{1}, {2}})}, {kY, Rows({{7}, {8}})}})}},
      {{0, Part(0, {{kX, Rows({{2}, {1}})}, {kY, Rows({{9}, {7}})}})}});
  EXPECT_THAT(found.other, ElementsAre(OtherValues{"y", {0}}));
  EXPECT_THAT(found.foreign, IsEmpty());
  EXPECT_THAT(found.spaces.front().map->to_reference, ElementsAre(1, 0));
}

TEST(MatchCall, AMaskSaysNothingOfWhoseRowsTheseAre) {
  const FedName mask = {"mask", 0};
  const RowsOfCall found = MatchCall(
      {{0,
        Part(0, {{kX, Rows({{1}, {2}, {3}})}, {mask, Rows({{1}, {1}, {1}})}})}},
      {{0, Part(0, {{kX, Rows({{4}, {5}, {3}})},
                    {mask, Rows({{1}, {1}, {1}})}})}});
  EXPECT_THAT(found.foreign, ElementsAre(0, 1));
  EXPECT_THAT(found.spaces, IsEmpty());
}

TEST(MatchCall, RowsThatTwoRanksReadAreRepeated) {
  const RowsOfCall found =
      MatchCall({{0, Part(0, {{kX, Rows({{1}, {2}, {3}, {4}})}})}},
                {{0, Part(0, {{kX, Rows({{1}, {2}})}})},
                 {1, Part(1, {{kX, Rows({{1}, {2}})}})}});
  EXPECT_THAT(found.repeated.ranks, ElementsAre(0, 1));
  EXPECT_THAT(found.repeated.rows, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(found.foreign, IsEmpty());
}

// Two ranks, of which each reads these rows of one number.
RowsOfCall MatchTwoRanks(const std::vector<int64_t>& reference,
                         const std::vector<int64_t>& first,
                         const std::vector<int64_t>& second) {
  return MatchCall({{0, Part(0, {{kX, Labels(reference)}})}},
                   {{0, Part(0, {{kX, Labels(first)}})},
                    {1, Part(1, {{kX, Labels(second)}})}});
}

TEST(MatchCall, RanksThatReadOtherRowsMayReadTheSameByMistakeNotByChance) {
  const std::vector<int64_t> reference = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_THAT(MatchTwoRanks(reference, {11, 12, 13, 14}, {14, 12, 13, 11})
                  .repeated.ranks,
              ElementsAre(0, 1));
  // Of a draw with replacement, some are drawn again.
  EXPECT_THAT(
      MatchTwoRanks(reference, {1, 12, 13, 14}, {1, 12, 17, 18}).repeated.ranks,
      IsEmpty());
  // Each reads the whole batch, to take its part of it.
  EXPECT_THAT(MatchTwoRanks({1, 2, 3, 4}, {11, 12, 13, 14}, {11, 12, 13, 14})
                  .repeated.ranks,
              IsEmpty());
}

TEST(MatchCall, WhatFillsABatchUpIsThereInExcess) {
  const RowsOfCall filled =
      MatchTwoRanks({1, 2, 3, 4, 5}, {1, 2, 3}, {4, 5, 1});
  EXPECT_TRUE(filled.in_excess);
  EXPECT_THAT(filled.repeated.rows, IsEmpty());
  EXPECT_THAT(filled.foreign, IsEmpty());
  // In place of a row that nobody reads it is an error.
  const RowsOfCall wrong = MatchTwoRanks({1, 2, 3, 4, 5}, {1, 2, 3}, {4, 2, 1});
  EXPECT_FALSE(wrong.in_excess);
  EXPECT_THAT(wrong.repeated.ranks, ElementsAre(0, 1));
}

TEST(MatchCall, RowsThatEachRankIsFedAllOfWereNotDealt) {
  const RowsOfCall found = MatchTwoRanks({1, 2, 3}, {1, 2, 3}, {1, 2, 3});
  EXPECT_TRUE(found.shared);
  EXPECT_THAT(found.repeated.rows, IsEmpty());
  EXPECT_FALSE(MatchTwoRanks({1, 2, 3}, {1, 2, 3}, {3, 1, 2}).shared);
  // A rank that reads them twice does not share them.
  EXPECT_FALSE(MatchCall({{0, Part(0, {{kX, Labels({1, 2})}})}},
                         {{0, Part(0, {{kX, Labels({1, 2})}})},
                          {1, Part(0, {{kX, Labels({1, 2})}})}})
                   .shared);
  // Of too many rows there are no digests.
  FedTensor large;
  large.rows = 100'000;
  EXPECT_FALSE(
      MatchCall({{0, Part(0, {{kX, large}})}},
                {{0, Part(0, {{kX, large}})}, {1, Part(1, {{kX, large}})}})
          .shared);
}

TEST(MatchCall, EqualSamplesAreTheSameWhoeverReadsThem) {
  // Two kinds of rows, with all that was read for them.
  const FedRows::Parts reference = {
      {0, Part(0, {{kX, Labels({0, 0, 1, 1})}, {kY, Labels({5, 5, 6, 6})}})}};
  const FedRows::Parts candidate = {
      {0, Part(0, {{kX, Labels({1, 0})}, {kY, Labels({6, 5})}})},
      {1, Part(1, {{kX, Labels({0, 1})}, {kY, Labels({5, 6})}})}};
  const RowsOfCall of_item = MatchCall(reference, candidate, true);
  ASSERT_EQ(of_item.spaces.size(), 1U);
  EXPECT_TRUE(of_item.spaces.front().map);
  // What else goes into a call of the model may differ.
  EXPECT_THAT(MatchCall(reference, candidate).spaces, IsEmpty());
}

TEST(MatchCall, OtherValuesAreOfTheRanksThatHoldThem) {
  const RowsOfCall found = MatchCall(
      {{0, Part(0, {{kX, Labels({1, 2, 3, 4})}, {kY, Labels({5, 6, 7, 8})}})}},
      {{0, Part(0, {{kX, Labels({1, 2})}, {kY, Labels({5, 6})}})},
       {1, Part(1, {{kX, Labels({3, 4})}, {kY, Labels({9, 8})}})}});
  EXPECT_THAT(found.other, ElementsAre(OtherValues{"y", {1}}));
}

TEST(MatchCall, ValuesThatRanksHoldAlikeAreRepeated) {
  // Each rank has drawn the first two numbers.
  const auto call_of = [](const std::vector<int64_t>& numbers) {
    return MatchCall(
        {{0, Part(0, {{kX, Labels({1, 2, 3, 4})}, {kY, Labels(numbers)}})}},
        {{0, Part(0, {{kX, Labels({1, 2})}, {kY, Labels({5, 6})}})},
         {1, Part(1, {{kX, Labels({3, 4})}, {kY, Labels({5, 6})}})}});
  };
  EXPECT_THAT(call_of({5, 6, 7, 8}).other,
              ElementsAre(OtherValues{"y", {}, true}));
  // Of few kinds they say nothing.
  EXPECT_THAT(call_of({5, 6, 6, 6}).other,
              ElementsAre(OtherValues{"y", {}, false}));
}

TEST(MatchCall, RowsThatTwoRanksPadAsTheirOwnAreRepeated) {
  const RowsOfCall found = MatchCall(
      {{0, Part(0, {{kX, Rows({{1, 2, 3, 0}, {4, 5, 0, 0}, {6, 7, 8, 9}})}})}},
      {{0, Part(0, {{kX, Rows({{1, 2, 3}, {4, 5, 0}})}})},
       {1, Part(1, {{kX, Rows({{1, 2, 3}, {4, 5, 0}})}})}});
  EXPECT_THAT(found.foreign, IsEmpty());
  EXPECT_THAT(found.repeated.ranks, ElementsAre(0, 1));
}

TEST(MatchCall, LabelsAloneDoNotRepeatARow) {
  // Each class is there twice, on both ranks; images are not.
  const RowsOfCall found = MatchCall(
      {{0, Part(0, {{kX, Rows({{1}, {2}, {3}, {4}})},
                    {kY, Rows({{0}, {0}, {1}, {1}})}})}},
      {{0, Part(0, {{kX, Rows({{1}, {3}})}, {kY, Rows({{0}, {1}})}})},
       {1, Part(1, {{kX, Rows({{2}, {4}})}, {kY, Rows({{0}, {1}})}})}});
  EXPECT_THAT(found.repeated.rows, IsEmpty());
  EXPECT_THAT(found.spaces.front().map->to_reference, ElementsAre(0, 2, 1, 3));
}

TEST(MatchCall, WhatCountsWithinABatchNeedNotBeTheReferences) {
  const FedName offsets = {"offsets", 0};
  const RowsOfCall found = MatchCall(
      {{0, Part(0, {{kX, Rows({{1}, {2}, {3}, {4}})},
                    {offsets, Relative(Rows({{0}, {3}, {5}, {6}}))}})}},
      {{0, Part(0, {{kX, Rows({{1}, {2}})},
                    {offsets, Relative(Rows({{0}, {3}}))}})},
       {1, Part(1, {{kX, Rows({{3}, {4}})},
                    {offsets, Relative(Rows({{0}, {1}}))}})}});
  EXPECT_THAT(found.relative, ElementsAre("offsets"));
  EXPECT_THAT(found.other, IsEmpty());
  EXPECT_FALSE(found.spaces.front().map);
}

TEST(MatchCall, NodesOfGraphsAreASpaceOfTheirOwn) {
  const FedName nodes = {"nodes", 0};
  const RowsOfCall found = MatchCall(
      {{0, Part(0, {{kY, Rows({{5}, {6}})},
                    {nodes, Rows({{1}, {2}, {1}, {3}, {4}})}})}},
      {{0, Part(0, {{kY, Rows({{6}})}, {nodes, Rows({{1}, {3}, {4}})}})},
       {1, Part(1, {{kY, Rows({{5}})}, {nodes, Rows({{1}, {2}})}})}});
  ASSERT_EQ(found.spaces.size(), 2U);
  EXPECT_THAT(found.spaces[0].map->to_reference, ElementsAre(2, 3, 4, 0, 1));
  EXPECT_THAT(found.spaces[1].map->to_reference, ElementsAre(1, 0));
}

TEST(MatchCall, RowsThatArePaddedFurtherAreTheSame) {
  const RowsOfCall found = MatchCall(
      {{0, Part(0, {{kX, Rows({{1, 2, 3, 0}, {4, 5, 0, 0}, {6, 7, 8, 9}})}})}},
      {{0, Part(0, {{kX, Rows({{1, 2, 3}, {4, 5, 0}})}})},
       {1, Part(1, {{kX, Rows({{6, 7, 8, 9}})}})}});
  ASSERT_EQ(found.spaces.size(), 1U);
  EXPECT_FALSE(found.spaces.front().map);
  ASSERT_EQ(found.lengths.size(), 1U);
  EXPECT_EQ(found.lengths.front().longest, 4);
  EXPECT_FALSE(found.lengths.front().at_begin);
  EXPECT_THAT(found.lengths.front().candidate,
              ElementsAre(std::pair(0, 3), std::pair(1, 4)));
}

TEST(MatchCall, ColumnsOfPaddedRowsAreNoRows) {
  const FedRows::Parts parts = {
      {0, Part(0, {{kX, Rows({{1, 2, 3}, {4, 5, 0}})},
                   {FedName("x", 1), Rows({{1, 4}, {2, 5}, {3, 0}})}})},
      {1, Part(0, {{kX, Rows({{6, 7}, {8, 9}})},
                   {FedName("x", 1), Rows({{6, 8}, {7, 9}})}})}};
  const RowsOfCall found = MatchCall(parts, parts);
  ASSERT_EQ(found.spaces.size(), 1U);
  EXPECT_EQ(found.spaces.front().total, 4);
  ASSERT_EQ(found.lengths.size(), 1U);
  EXPECT_EQ(found.lengths.front().longest, 3);
}

TEST(MatchCall, BatchesMayLieAlongTheSecondDimension) {
  const FedName steps = {"x", 0};
  const FedName columns = {"x", 1};
  const RowsOfCall found = MatchCall(
      {{0, Part(0, {{steps, Rows({{1, 2, 3}, {4, 5, 6}})},
                    {columns, Rows({{1, 4}, {2, 5}, {3, 6}})}})}},
      {{0, Part(0, {{steps, Rows({{1, 3}, {4, 6}})},
                    {columns, Rows({{1, 4}, {3, 6}})}})},
       {1, Part(1, {{steps, Rows({{2}, {5}})}, {columns, Rows({{2, 5}})}})}});
  ASSERT_EQ(found.spaces.size(), 1U);
  EXPECT_THAT(found.spaces.front().map->to_reference, ElementsAre(0, 2, 1));
  EXPECT_THAT(found.foreign, IsEmpty());
  EXPECT_THAT(found.other, IsEmpty());
}

// Layers first, as torch has the states of recurrent layers.
TEST(MatchCall, AHiddenStateOfOtherValuesIsBesideTheSameRows) {
  const auto part = [](int rank, const std::vector<int64_t>& rows,
                       const std::vector<int64_t>& states) {
    std::vector<std::vector<int64_t>> steps(3);
    std::vector<std::vector<int64_t>> columns;
    for (const int64_t row : rows) {
      columns.push_back({row, row + 1, row + 2});
      for (size_t t = 0; t < 3; ++t) steps[t].push_back(columns.back()[t]);
    }
    return Part(rank, {{FedName("x", 0), Rows(steps)},
                       {FedName("x", 1), Rows(columns)},
                       {FedName("h", 0), Rows({states})},
                       {FedName("h", 1), Labels(states)}});
  };
  const FedRows::Parts reference = {
      {0, part(0, {10, 20, 30, 40}, {5, 6, 7, 8})}};
  const RowsOfCall found = MatchCall(
      reference,
      {{0, part(0, {10, 20}, {5, 6})}, {1, part(1, {30, 40}, {0, 0})}});
  EXPECT_THAT(found.other, ElementsAre(OtherValues{"h", {1}}));
  EXPECT_THAT(found.foreign, IsEmpty());
  const RowsOfCall others = MatchCall(
      reference,
      {{0, part(0, {10, 20}, {5, 6})}, {1, part(1, {31, 40}, {0, 0})}});
  EXPECT_THAT(others.other, IsEmpty());
}

// It begins as zeros, which look like rows of other lengths, all padding.
TEST(MatchCall, AHiddenStateOfZerosIsNoRowsOfItsOwn) {
  const auto part = [](const std::vector<int64_t>& rows) {
    const std::vector<int64_t> zeros(rows.size(), 0);
    return Part(0, {{FedName("x", 1), Labels(rows)},
                    {FedName("h", 0), Rows({zeros, zeros})},
                    {FedName("h", 1), Labels(zeros)}});
  };
  const RowsOfCall found =
      PlaceRows({{0, part({10, 20, 30, 40})}}, part({30, 40}));
  ASSERT_EQ(found.spaces.size(), 1U);
  EXPECT_THAT(found.spaces.front().map->to_reference, ElementsAre(2, 3));
  EXPECT_EQ(found.spaces.front().total, 4);
  EXPECT_THAT(found.foreign, IsEmpty());
}

// Columns of rows are counted by what is told of each place in them.
TEST(MatchCall, WhatStandsForPlacesInARowIsNotTheRows) {
  const std::map<FedName, FedTensor> places = {
      {FedName("place", 0), Labels({3, 1, 2})}};
  const auto part = [&](const std::vector<std::vector<int64_t>>& rows) {
    std::vector<std::vector<int64_t>> columns(3);
    for (const auto& row : rows) {
      for (size_t t = 0; t < 3; ++t) columns[t].push_back(row[t]);
    }
    std::map<FedName, FedTensor> tensors = places;
    tensors[kX] = Rows(rows);
    tensors[FedName("x", 1)] = Rows(columns);
    return Part(0, tensors);
  };
  const RowsOfCall found =
      PlaceRows({{0, part({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {6, 2, 4}})}},
                part({{1, 2, 3}, {9, 9, 8}}));
  EXPECT_THAT(found.other, IsEmpty());
}

// A mask says on which side it is padded as little as whose it is: read as if
// its end were padded, it would stand beside other rows.
TEST(MatchCall, AMaskIsPaddedWhereTheTextsAre) {
  const FedName mask("mask", 0);
  const RowsOfCall found = PlaceRows(
      {{0,
        Part(0, {{kX, Rows({{0, 0, 1, 2}, {0, 3, 4, 5}, {6, 7, 8, 9}})},
                 {mask, Rows({{0, 0, 1, 1}, {0, 1, 1, 1}, {1, 1, 1, 1}})}})}},
      Part(0, {{kX, Rows({{3, 4, 5}, {0, 1, 2}})},
               {mask, Rows({{1, 1, 1}, {0, 1, 1}})}}));
  EXPECT_TRUE(found.mixed.empty());
  ASSERT_EQ(found.spaces.size(), 1u);
  EXPECT_EQ(found.spaces.front().map->to_reference,
            (std::vector<int64_t>{1, 0}));
}

// Of a mask that is another one in the candidate, too, the columns are no rows.
TEST(MatchCall, ColumnsOfWhatDiffersCountTheSameLength) {
  const FedName mask("mask", 0);
  const FedName columns("mask", 1);
  const RowsOfCall found =
      MatchCall({{0, Part(0, {{kX, Rows({{1, 2, 3}, {4, 5, 0}})},
                              {mask, Rows({{1, 1, 1}, {1, 1, 0}})},
                              {columns, Rows({{1, 1}, {1, 1}, {1, 0}})}})},
                 {1, Part(0, {{kX, Rows({{6, 7}, {8, 9}})},
                              {mask, Rows({{1, 1}, {1, 1}})},
                              {columns, Rows({{1, 1}, {1, 1}})}})}},
                {{0, Part(0, {{kX, Rows({{1, 2, 3}, {4, 5, 0}})},
                              {mask, Rows({{1, 1, 1}, {0, 1, 1}})},
                              {columns, Rows({{1, 0}, {1, 1}, {1, 1}})}})},
                 {1, Part(1, {{kX, Rows({{6, 7}, {8, 9}})},
                              {mask, Rows({{0, 1}, {1, 0}})},
                              {columns, Rows({{0, 1}, {1, 0}})}})}});
  EXPECT_TRUE(found.untold.empty());
  EXPECT_EQ(found.lengths.size(), 1U);
}

// Time first, and all tokens but the last: of rank 0's longest row one is left
// out that the reference has.
TEST(MatchCall, ColumnsMayBePaddedAndCut) {
  const FedName columns = {"x", 1};
  const RowsOfCall found = MatchCall(
      {{0, Part(0, {{columns, Rows({{1, 2, 3, 0, 0}, {4, 5, 6, 7, 8}})}})}},
      {{0, Part(0, {{columns, Rows({{1, 2}})}})},
       {1, Part(1, {{columns, Rows({{4, 5, 6, 7, 8}})}})}});
  ASSERT_EQ(found.spaces.size(), 1U);
  EXPECT_FALSE(found.spaces.front().map);
  ASSERT_EQ(found.lengths.size(), 1U);
  EXPECT_THAT(found.lengths.front().candidate,
              ElementsAre(std::pair(0, 2), std::pair(1, 5)));
  EXPECT_THAT(found.foreign, IsEmpty());
}

TEST(PlaceRows, ARankFindsItsRowsAmongAll) {
  const FedRows::Parts reference = {
      {0, Part(0, {{kX, Rows({{1}, {2}, {3}, {4}})}})}};
  const RowsOfCall found =
      PlaceRows(reference, Part(1, {{kX, Rows({{2}, {4}})}}));
  EXPECT_THAT(found.spaces.front().map->to_reference, ElementsAre(1, 3));
  EXPECT_EQ(found.spaces.front().total, 4);
  const RowsOfCall not_all =
      PlaceRows(reference, Part(1, {{kX, Rows({{2}, {9}})}}));
  EXPECT_THAT(not_all.foreign, ElementsAre(1));
}

}  // namespace
}  // namespace ttrace::row_alignment_test
