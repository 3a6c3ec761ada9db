#include "src/check/row_notes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/compare/row_map.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::row_notes_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using KindAndJson = std::pair<std::string, std::string>;

KindAndJson FedCallNote(int iteration, int micro_batch, int call) {
  return {"fed_call",
          fmt::format(R"({{"fed":"","iteration":{},"micro_batch":{},)"
                      R"("call":{},"rows":2}})",
                      iteration, micro_batch, call)};
}

Side SideThatSays(const ScratchFolder& folder,
                  const std::vector<KindAndJson>& notes) {
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenRank(folder.path(), 0, 1);
  for (const auto& [kind, json] : notes) OrDie(writer->Note(kind, json));
  OrDie(writer->Close(true, ""));
  return OrDie(Side::Open(folder.path(), {}));
}

std::vector<RunNote> NotesOf(const RowAlignment& rows,
                             const std::vector<KindAndJson>& own = {},
                             const std::vector<KindAndJson>& theirs = {}) {
  const ScratchFolder reference;
  const ScratchFolder candidate;
  return RowNotes(SideThatSays(reference, theirs), SideThatSays(candidate, own),
                  rows);
}

TEST(RowNotes, OfTheReferencesRowsInItsOrderNothingIsSaid) {
  RowAlignment rows;
  rows.calls[{false, 0, 0}].spaces.resize(1);
  EXPECT_THAT(NotesOf(rows, {FedCallNote(0, 0, 0)}, {FedCallNote(0, 0, 0)}),
              IsEmpty());
}

TEST(RowNotes, RowsInAnotherOrderAreSaidInOneLine) {
  RowAlignment rows;
  for (const int iteration : {0, 2}) {
    for (const int call : {0, 1}) {
      RowsOfCall& of = rows.calls[{false, iteration, call}];
      of.spaces.resize(1);
      of.spaces[0].map = RowMap{{1, 0}};
    }
  }
  rows.calls[{false, 1, 0}].spaces.resize(1);
  const std::vector<RunNote> notes = NotesOf(rows);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].kind, NoteKind::kRowsReordered);
  EXPECT_FALSE(notes[0].leaves_verdict_open());
  EXPECT_THAT(NoteWords(notes[0]), HasSubstr("iterations 0, 2:"));
}

TEST(RowNotes, OtherValuesBesideTheSameRowsLeaveTheVerdictOpenOncePerName) {
  RowAlignment rows;
  rows.calls[{false, 3, 0}].other = {{"noise", {1}}};
  rows.calls[{false, 4, 0}].other = {{"noise", {1}}};
  std::vector<RunNote> notes = NotesOf(rows);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(notes[0].leaves_verdict_open());
  EXPECT_FALSE(notes[0].way_out.empty());
  EXPECT_THAT(NoteWords(notes[0]),
              AllOf(HasSubstr("an input 'noise' of other values for the same"),
                    HasSubstr("in iteration 3 it holds values on rank 1 ")));
  RowAlignment of_data;
  of_data.calls[{true, 0, 0}].other = {{"labels", {0, 1}}};
  notes = NotesOf(of_data);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(NoteWords(notes[0]), HasSubstr("data 'labels' of other values"));
}

TEST(RowNotes, ValuesOfRowsThatOthersHoldAsWellAreAFindingOfTheirOwn) {
  RowAlignment rows;
  rows.calls[{false, 3, 0}].other = {{"noise", {}, true}};
  const std::vector<RunNote> notes = NotesOf(rows);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_FALSE(notes[0].leaves_verdict_open());
  EXPECT_THAT(NoteWords(notes[0]),
              HasSubstr("ranks may draw the same random numbers"));
}

TEST(RowNotes, InputsThatAGivenBatchDoesNotExplainLeaveTheVerdictOpen) {
  const KindAndJson graft = {"graft", R"({"what":"data"})"};
  RowAlignment rows;
  rows.calls[{false, 1, 0}].foreign = {0, 3};
  rows.calls[{false, 2, 0}].foreign = {1};
  const std::vector<RunNote> notes = NotesOf(rows, {graft});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(notes[0].leaves_verdict_open());
  EXPECT_THAT(NoteWords(notes[0]),
              AllOf(HasSubstr("that the loop makes of other values"),
                    HasSubstr("in iteration 1 2 of its rows")));
  // Data that nobody replaced is a finding of its own.
  EXPECT_THAT(NotesOf(rows), IsEmpty());
  RowAlignment of_data;
  of_data.calls[{true, 1, 0}].foreign = {0, 3};
  EXPECT_THAT(NotesOf(of_data, {graft}), IsEmpty());
  // Nor is it news where ranks read one another's rows.
  rows.calls[{true, 0, 0}].repeated.ranks = {0, 1};
  EXPECT_THAT(NotesOf(rows, {graft}), IsEmpty());
}

TEST(RowNotes, InputsThatTheModelItselfMayHaveMadeLeaveTheVerdictOpen) {
  RowAlignment rows;
  rows.calls[{false, 1, 0}].foreign = {0, 3};
  const KindAndJson called = {"called_without_gradients", R"({"iteration":1})"};
  const std::vector<RunNote> notes = NotesOf(rows, {called}, {called});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(notes[0].leaves_verdict_open());
  EXPECT_THAT(NoteWords(notes[0]), HasSubstr("make by calling it"));
  const KindAndJson other = {"called_without_gradients", R"({"iteration":0})"};
  EXPECT_THAT(NotesOf(rows, {other}, {called}), IsEmpty());
  EXPECT_THAT(NotesOf(rows, {called}, {other}), IsEmpty());
  EXPECT_THAT(NotesOf(rows, {called}), IsEmpty());
}

TEST(RowNotes, InputsThatAreKnownUntilAStepAreToBeComparedUntilThen) {
  const KindAndJson graft = {"graft", R"({"what":"data"})"};
  RowAlignment rows;
  rows.calls[{false, 4, 0}].spaces.resize(1);
  rows.calls[{false, 5, 0}].foreign = {0, 3};
  const std::vector<RunNote> notes = NotesOf(rows, {graft});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(NoteWords(notes[0]), HasSubstr("may have been stepped since"));
  EXPECT_THAT(notes[0].way_out, HasSubstr("--iterations 4:5"));
  // Those that were replaced are the reference's for that.
  const std::vector<RunNote> replaced = NotesOf(
      rows, {{"graft", R"({"what":"data","iteration":4,"differs":1,"of":1,)"
                       R"("examples":["x"]})"}});
  ASSERT_EQ(replaced.size(), 1U);
  EXPECT_THAT(replaced[0].way_out, HasSubstr("one seed of the sampler"));
}

TEST(RowNotes, WhatIsMadeInBatchesOfAnotherSizeRoundsOtherwise) {
  RowAlignment rows;
  rows.calls[{false, 0, 0}].foreign = {0, 3};
  const std::vector<RunNote> notes =
      NotesOf(rows,
              {{"graft", R"({"what":"data"})"},
               FedCallNote(0, 0, 0),
               FedCallNote(0, 1, 0)},
              {{"fed_call", R"({"fed":"","iteration":0,"micro_batch":0,)"
                            R"("call":0,"rows":4})"}});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0].way_out, HasSubstr("micro-batches of one size"));
}

// An item of two rows with these digests.
std::vector<KindAndJson> ItemNotes(int iteration, int micro_batch,
                                   const std::string& rows) {
  const std::string at =
      fmt::format(R"("fed":"data","iteration":{},"micro_batch":{},"call":0)",
                  iteration, micro_batch);
  std::string digests;
  for (const char row : rows) digests += std::string(16, row);
  return {{"fed_call", fmt::format(R"({{{},"rows":{}}})", at, rows.size())},
          {"fed_rows",
           fmt::format(
               R"({{{},"arg":"x","dim":0,"rows":{},"width":0,"whole":"{}"}})",
               at, rows.size(), digests)}};
}

Side TwoRanksThatRead(const ScratchFolder& folder, const std::string& first,
                      const std::string& second, bool grafted) {
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  for (const int rank : {0, 1}) {
    const auto writer = OpenRank(folder.path(), rank, 2);
    for (const auto& [kind, json] :
         ItemNotes(0, rank, rank == 0 ? first : second)) {
      OrDie(writer->Note(kind, json));
    }
    if (grafted) OrDie(writer->Note("graft", R"({"what":"data"})"));
    OrDie(writer->Close(true, ""));
  }
  return OrDie(Side::Open(folder.path(), {}));
}

TEST(RowNotes, ARankThatReadsRowsOfAnotherStepIsNamed) {
  const ScratchFolder folder;
  std::vector<KindAndJson> steps = ItemNotes(0, 0, "1234");
  for (const KindAndJson& note : ItemNotes(1, 0, "5678")) steps.push_back(note);
  const Side reference = SideThatSays(folder, steps);
  const auto notes_of = [&](const std::string& first, const std::string& second,
                            bool grafted = true) {
    const ScratchFolder own;
    const Side candidate = TwoRanksThatRead(own, first, second, grafted);
    return RowNotes(reference, candidate,
                    OrDie(FindRows(reference, candidate)));
  };
  const std::vector<RunNote> notes = notes_of("12", "56");
  ASSERT_EQ(notes.size(), 1U);
  // They are replaced as those of a sampler that shuffles otherwise.
  EXPECT_FALSE(notes[0].leaves_verdict_open());
  EXPECT_THAT(NoteWords(notes[0]),
              HasSubstr("rank 1: in iteration 0 it read 2 rows that the "
                        "reference does not read, and other ranks none; the "
                        "reference reads them in iteration 1"));
  EXPECT_THAT(notes_of("12", "34"), IsEmpty());
  EXPECT_THAT(notes_of("56", "78"), IsEmpty()) << "another shuffling";
  EXPECT_EQ(notes_of("12", "56", false).size(), 1U) << "beside the finding";
}

TEST(TwinNotes, RanksThatFeedTheModelTheSameRowsAreSaid) {
  const auto notes_of = [](const std::string& second) {
    const ScratchFolder folder;
    OrDie(CreateTraceFolder(folder.path(), "{}", true));
    for (const int rank : {0, 1}) {
      const auto writer = OpenRank(folder.path(), rank, 2);
      for (auto [kind, json] :
           ItemNotes(0, rank, rank == 0 ? "1234" : second)) {
        json.replace(json.find("data"), 4, "");
        OrDie(writer->Note(kind, json));
      }
      OrDie(writer->Close(true, ""));
    }
    return TwinNotes(OrDie(Side::Open(folder.path(), {})));
  };
  const std::vector<RunNote> notes = notes_of("4321");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_FALSE(notes[0].leaves_verdict_open());
  EXPECT_THAT(
      NoteWords(notes[0]),
      HasSubstr("ranks 0, 1: in iteration 0 they feed the model the same "
                "rows"));
  EXPECT_THAT(notes_of("4325"), IsEmpty());
}

TEST(RowNotes, ABatchOfAnotherSizeIsSaidWithBoth) {
  RowAlignment rows;
  RowsOfCall& call = rows.calls[{false, 0, 0}];
  call.foreign = {2, 3};
  call.fed = 8;
  call.fed_in_reference = 4;
  const std::vector<RunNote> notes =
      NotesOf(rows, {{"graft", R"({"what":"data"})"}});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(notes[0].leaves_verdict_open());
  EXPECT_THAT(NoteWords(notes[0]),
              HasSubstr("the model is fed 8 rows on all ranks together, in the "
                        "reference 4"));
}

TEST(RowNotes, AModelThatIsCalledAnotherNumberOfTimesLeavesTheVerdictOpen) {
  const std::vector<KindAndJson> once = {FedCallNote(0, 0, 0)};
  // Of two micro-batches each has one call.
  const std::vector<KindAndJson> parts = {FedCallNote(0, 0, 0),
                                          FedCallNote(0, 1, 0)};
  const std::vector<KindAndJson> twice = {
      FedCallNote(0, 0, 0), FedCallNote(0, 0, 1), FedCallNote(1, 0, 0),
      FedCallNote(1, 0, 1)};
  EXPECT_THAT(NotesOf({}, parts, once), IsEmpty());
  EXPECT_THAT(NotesOf({}, twice, twice), IsEmpty());
  const std::vector<RunNote> notes = NotesOf({}, twice, once);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(notes[0].leaves_verdict_open());
  EXPECT_THAT(NoteWords(notes[0]),
              HasSubstr("in iteration 0 the reference calls it once before it "
                        "computes gradients, the candidate twice"));
  // Once, though in two iterations, and also the other way round.
  const std::vector<KindAndJson> once_each = {FedCallNote(0, 0, 0),
                                              FedCallNote(1, 0, 0)};
  EXPECT_EQ(NotesOf({}, once_each, twice).size(), 1U);
  // Items of data are not calls of the model.
  EXPECT_THAT(
      NotesOf({},
              {FedCallNote(0, 0, 0),
               {"fed_call",
                R"({"fed":"data","iteration":0,"micro_batch":0,"call":1})"}},
              once),
      IsEmpty());
}

TEST(RowNotes, OfAModelThatIsCalledOtherwiseNoCallIsSaidToHaveOtherRows) {
  const KindAndJson graft = {"graft", R"({"what":"data"})"};
  RowAlignment rows;
  RowsOfCall& call = rows.calls[{false, 0, 0}];
  call.foreign = {2, 3};
  call.fed = 8;
  call.fed_in_reference = 4;
  const std::vector<RunNote> notes =
      NotesOf(rows, {graft, FedCallNote(0, 0, 0), FedCallNote(0, 1, 0)},
              {FedCallNote(0, 0, 0), FedCallNote(0, 0, 1)});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(NoteWords(notes[0]), HasSubstr("is called otherwise"));
}

}  // namespace
}  // namespace ttrace::row_notes_test
