#include "src/experiment/gather_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/experiment/side.h"
#include "src/trace/note_json.h"
#include "src/trace/reader.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::gather_notes_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two ranks, and what each notes.
class GatherNotesTest : public testing::Test {
 protected:
  using Notes = std::vector<std::pair<std::string, std::string>>;

  std::shared_ptr<const Trace> Write(const std::vector<Notes>& of_ranks) {
    const std::string folder = scratch_ / "trace";
    OrDie(CreateTraceFolder(folder, "{}", true));
    for (int rank = 0; rank < 2; ++rank) {
      const auto writer =
          OrDie(TraceWriter::Open(folder, TensorParallelMeta(rank, 2)));
      for (const auto& [kind, json] : of_ranks[static_cast<size_t>(rank)]) {
        OrDie(writer->Note(kind, json));
      }
      OrDie(writer->Close(true, ""));
    }
    return OrDie(Trace::Open(folder));
  }

  static std::vector<RunNote> Gather(const Trace& trace) {
    NoteGatherer gatherer;
    ForEachNoteIf(trace, NoteGatherer::Reads,
                  [&](const ParsedNote& note) { gatherer.Add(note); });
    return std::move(gatherer).Finish(trace.folder());
  }

  // Without the folder.
  std::vector<std::string> Say(const std::vector<Notes>& of_ranks) {
    std::vector<std::string> out;
    for (RunNote& note : Gather(*Write(of_ranks))) {
      note.folder.clear();
      out.push_back(NoteWords(note));
    }
    return out;
  }

  ScratchFolder scratch_;
};

TEST_F(GatherNotesTest, ModulesBesideTheModelAreCountedOncePerRun) {
  const Notes two = {
      {"modules_beside", R"({"count":2,"classes":["Encoder","Net"]})"}};
  EXPECT_THAT(Say({two, two}),
              ElementsAre("2 modules beside the model are not compared: copies "
                          "of it or of a part of it (Encoder, Net), as an "
                          "average of the weights or a teacher"));
}

TEST_F(GatherNotesTest, OneModuleBesideTheModelIsACopy) {
  const Notes one = {{"modules_beside", R"({"count":1,"classes":["Net"]})"}};
  EXPECT_THAT(Say({one, one}),
              ElementsAre("1 module beside the model is not compared: a copy "
                          "of it or of a part of it (Net), as an average of "
                          "the weights or a teacher"));
}

TEST_F(GatherNotesTest, WhatRanksSayAlikeIsSaidOnceWithItsThings) {
  const auto kept = [](const std::string& fqn) {
    return std::pair<std::string, std::string>(
        "not_grafted",
        R"({"fqn":")" + fqn + R"(","reason":"ambiguous","way_out":"name it"})");
  };
  EXPECT_THAT(Say({{kept("a"), kept("b")}, {kept("b"), kept("c"), kept("d")}}),
              ElementsAre("4 tensors kept the candidate's own values (a, b, c, "
                          "...): ambiguous (name it)"));
}

TEST_F(GatherNotesTest, WhoStoppedAndWhoSkippedIsNamed) {
  EXPECT_THAT(
      Say({{{"skipped_step", R"({"iteration":3,"reason":"overflow"})"}},
           {{"stopped", R"({"reason":"no space"})"},
            {"skipped_step", R"({"iteration":3,"reason":"overflow"})"}}}),
      ElementsAre("rank 1: capture stopped: no space",
                  "iteration 3: the optimizer's step was skipped (overflow)"));
}

// Only the first iteration is news, and of it the rank with the most.
TEST_F(GatherNotesTest, WhatWasReplacedIsSaidWhereItBegins) {
  const auto graft = [](int iteration, int differs) {
    return std::pair<std::string, std::string>(
        "graft", R"({"what":"weights","iteration":)" +
                     std::to_string(iteration) + R"(,"differs":)" +
                     std::to_string(differs) + R"(,"of":9,"examples":["w)" +
                     std::to_string(differs) + R"("]})");
  };
  EXPECT_THAT(
      Say({{graft(1, 7), graft(0, 2)}, {graft(0, 5), graft(1, 8)}}),
      ElementsAre("iteration 0: its own weights differed from the reference's "
                  "in up to 5 of 9 tensors of a rank (ranks 0, 1) and were "
                  "replaced (w5)"));
  EXPECT_THAT(Say({{graft(0, 0), graft(1, 7)}, {graft(0, 0)}}), IsEmpty());
}

TEST_F(GatherNotesTest, RanksThatComputeAnotherFunctionAreKept) {
  const auto says = [](const std::string& value) {
    return Notes{{"computation", R"({"name":"size","value":")" + value +
                                     R"(","option":"--size"})"}};
  };
  const Side side = Side::Of(Write({says("4"), says("8")}));
  const auto& fact = side.facts().computation.at("size");
  EXPECT_EQ(fact.values.at("4"), std::vector<int>{0});
  EXPECT_EQ(fact.values.at("8"), std::vector<int>{1});
  EXPECT_EQ(fact.option, "--size");
}

}  // namespace
}  // namespace ttrace::gather_notes_test
