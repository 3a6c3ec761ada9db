#include <gtest/gtest.h>

#include "src/experiment/gather_notes.h"
#include "src/report/reason_words.h"
#include "src/trace/reader.h"
#include "src/trace/scratch_trace.h"

namespace ttrace {
namespace {

TEST(NoteWords, ModulesBesideTheModelAreCountedOncePerRun) {
  const ScratchFolder scratch;
  const std::string folder = scratch / "trace";
  OrDie(CreateTraceFolder(folder, "{}", true));
  for (int rank = 0; rank < 2; ++rank) {
    const auto writer =
        OrDie(TraceWriter::Open(folder, TensorParallelMeta(rank, 2)));
    OrDie(writer->Note("modules_beside",
                       R"({"count":2,"classes":["Encoder","Net"]})"));
    OrDie(writer->Close(true, ""));
  }
  std::vector<RunNote> notes = GatherNotes(*OrDie(Trace::Open(folder)));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_FALSE(notes[0].leaves_verdict_open());
  notes[0].folder.clear();
  EXPECT_EQ(NoteWords(notes[0]),
            "2 modules beside the model are not compared: copies of it or of "
            "a part of it (Encoder, Net), as an average of the weights or a "
            "teacher");
  notes[0].count = 1;
  notes[0].names = {"Net"};
  EXPECT_EQ(NoteWords(notes[0]),
            "1 module beside the model is not compared: a copy of it or of a "
            "part of it (Net), as an average of the weights or a teacher");
}

}  // namespace
}  // namespace ttrace
