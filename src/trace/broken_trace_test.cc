// Whatever happens to the files, the answer is a Trace or an Error.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "src/trace/scratch_trace.h"

namespace ttrace {
namespace {

std::string IndexPath(const ScratchFolder& folder) {
  return folder / "rank-00000.r0/index.jsonl";
}
std::string SegmentPath(const ScratchFolder& folder) {
  return folder / "rank-00000.r0/segment-00000.safetensors";
}

// Reads all that an open trace offers.
void UseEverything(const Trace& trace) {
  for (const Record& record : trace.records()) {
    static_cast<void>(trace.Verify(record));
    static_cast<void>(trace.coordinate(record.rank));
    EXPECT_EQ(record.layout.local_shape(), record.local_shape);
  }
}

ErrorCode CodeOf(const Result<std::shared_ptr<const Trace>>& trace) {
  EXPECT_FALSE(trace.ok());
  return trace.ok() ? ErrorCode::kIo : trace.error().code();
}

TEST(BrokenIndex, CutAtAnyByteKeepsWhatIsBeforeTheCut) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  const std::string text = FileText(IndexPath(folder));
  for (size_t size = text.size(); size-- > 0;) {
    ASSERT_EQ(truncate(IndexPath(folder).c_str(), static_cast<off_t>(size)), 0);
    const auto trace = Trace::Open(folder.path());
    ASSERT_TRUE(trace.ok()) << size << ": " << trace.error().message();
    UseEverything(**trace);
    const std::string_view left = std::string_view(text).substr(0, size);
    size_t records = 0;
    for (size_t at = 0;
         (at = left.find("\"type\":\"record\"", at)) != std::string_view::npos;
         ++at) {
      if (left.find('\n', at) != std::string_view::npos) ++records;
    }
    EXPECT_EQ((*trace)->records().size(), records) << size;
    const RankTrace& rank = (*trace)->ranks()[0];
    EXPECT_FALSE(rank.closed);
    EXPECT_FALSE(rank.complete);
    EXPECT_EQ(rank.dropped_lines, left.empty() || left.back() == '\n' ? 0 : 1);
  }
}

TEST(BrokenIndex, AnyFlippedBitGivesATraceOrAnError) {
  for (const bool closed : {true, false}) {
    const ScratchFolder folder;
    WriteSmallTrace(folder.path(), closed);
    const std::string text = FileText(IndexPath(folder));
    size_t errors = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        SetFileByte(IndexPath(folder), i,
                    static_cast<char>(text[i] ^ (1 << bit)));
        const auto trace = Trace::Open(folder.path());
        if (trace.ok()) {
          UseEverything(**trace);
          continue;
        }
        ++errors;
        ASSERT_EQ(trace.error().code(), ErrorCode::kCorrupt);
        ASSERT_NE(trace.error().message().find("rank-00000.r0/"),
                  std::string::npos)
            << trace.error().message();
      }
      SetFileByte(IndexPath(folder), i, text[i]);
    }
    EXPECT_GT(errors, text.size() * 8 / 3);
  }
}

TEST(BrokenIndex, ABadLineInTheMiddleNamesFileAndLine) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  const std::string text = FileText(IndexPath(folder));
  const size_t second_line = text.find('\n') + 1;
  for (const std::string& bad :
       {std::string("{\n"), std::string("\n"), std::string(2 << 20, ' ') + "\n",
        text.substr(0, second_line), std::string("\0\n", 2)}) {
    std::string changed = text;
    changed.insert(second_line, bad);
    SetFileText(IndexPath(folder), changed);
    const auto trace = Trace::Open(folder.path());
    EXPECT_EQ(CodeOf(trace), ErrorCode::kCorrupt);
    EXPECT_NE(trace.error().message().find("index.jsonl: line 2: "),
              std::string::npos)
        << trace.error().message();
  }
}

TEST(BrokenIndex, NothingFollowsTheEndLine) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  const std::string text = FileText(IndexPath(folder));
  SetFileText(IndexPath(folder), text + text.substr(0, text.find('\n') + 1));
  EXPECT_EQ(CodeOf(Trace::Open(folder.path())), ErrorCode::kCorrupt);
  SetFileText(IndexPath(folder), text + "{");
  EXPECT_EQ(CodeOf(Trace::Open(folder.path())), ErrorCode::kCorrupt);
}

TEST(BrokenSegment, CutAtAnyByteOfAClosedTraceIsCorrupt) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  const auto size = std::filesystem::file_size(SegmentPath(folder));
  ASSERT_EQ(size, static_cast<uintmax_t>(kSegmentHeaderBytes) + 24);
  std::set<uintmax_t> cuts = {0, 1, 7, 8, 9, 100, 1000};
  for (uintmax_t cut = size - 40; cut < size; ++cut) cuts.insert(cut);
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    std::filesystem::resize_file(SegmentPath(folder), *cut);
    EXPECT_EQ(CodeOf(Trace::Open(folder.path())), ErrorCode::kCorrupt) << *cut;
  }
  std::filesystem::remove(SegmentPath(folder));
  EXPECT_EQ(CodeOf(Trace::Open(folder.path())), ErrorCode::kCorrupt);
}

TEST(BrokenSegment, CutAfterTheLastSealDropsTheRecordsThatLostTheirBytes) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/false);
  const auto header = static_cast<uintmax_t>(kSegmentHeaderBytes);
  for (uintmax_t cut = 24; cut-- > 0;) {
    std::filesystem::resize_file(SegmentPath(folder), header + cut);
    const auto trace = Trace::Open(folder.path());
    if (cut < 20) {
      EXPECT_EQ(CodeOf(trace), ErrorCode::kCorrupt) << "what was sealed is cut";
      EXPECT_NE(trace.error().message().find("segment-00000"),
                std::string::npos);
      continue;
    }
    ASSERT_TRUE(trace.ok()) << trace.error().message();
    EXPECT_EQ((*trace)->records().size(), 2u);
    EXPECT_EQ((*trace)->ranks()[0].dropped_lines, 1);
    UseEverything(**trace);
  }
}

TEST(BrokenSegment, AnyFlippedBitOfTheHeaderGivesATraceOrAnError) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  const std::string text = FileText(SegmentPath(folder));
  const size_t used = text.find("  ");
  for (size_t i = 0; i < used; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      SetFileByte(SegmentPath(folder), i,
                  static_cast<char>(text[i] ^ (1 << bit)));
      const auto trace = Trace::Open(folder.path());
      if (trace.ok()) UseEverything(**trace);
    }
    SetFileByte(SegmentPath(folder), i, text[i]);
  }
  EXPECT_TRUE(Trace::Open(folder.path()).ok());
}

TEST(BrokenSegment, AnyFlippedBitOfATensorIsFoundByVerify) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  const std::string text = FileText(SegmentPath(folder));
  for (size_t i = static_cast<size_t>(kSegmentHeaderBytes); i < text.size();
       ++i) {
    SetFileByte(SegmentPath(folder), i, static_cast<char>(text[i] ^ 4));
    const auto trace = OrDie(Trace::Open(folder.path()));
    int bad = 0;
    for (const Record& record : trace->records()) {
      const Status status = trace->Verify(record);
      if (status.ok()) continue;
      EXPECT_EQ(status.error().code(), ErrorCode::kCorrupt);
      ++bad;
    }
    EXPECT_EQ(bad, 1) << i;
    SetFileByte(SegmentPath(folder), i, text[i]);
  }
}

TEST(BrokenSegment, OfAnotherTraceIsNotTakenForOurs) {
  const ScratchFolder folder;
  const ScratchFolder other;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  OrDie(CreateTraceFolder(other.path(), "{}", false));
  {
    // The same bytes in total, cut into other tensors.
    const auto writer = OpenRank(other.path(), 0, 1);
    OrDie(AppendFloats(*writer, "a", {1, 2}));
    OrDie(AppendFloats(*writer, "b", {3, 4, 5}));
    OrDie(AppendFloats(*writer, "c", {6}));
    OrDie(writer->Close(true, ""));
  }
  std::filesystem::copy_file(SegmentPath(other), SegmentPath(folder),
                             std::filesystem::copy_options::overwrite_existing);
  const auto trace = Trace::Open(folder.path());
  EXPECT_EQ(CodeOf(trace), ErrorCode::kCorrupt);
  EXPECT_NE(trace.error().message().find("segment-00000"), std::string::npos);
}

TEST(BrokenSegment, ThatShrinksWhileItIsReadIsAnErrorAndNoSignal) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  const auto trace = OrDie(Trace::Open(folder.path()));
  OrDie(trace->Verify(trace->records()[2]));
  std::filesystem::resize_file(SegmentPath(folder),
                               static_cast<uintmax_t>(kSegmentHeaderBytes) + 5);
  EXPECT_EQ(trace->Verify(trace->records()[2]).error().code(),
            ErrorCode::kCorrupt);
  const auto unopened = OrDie(Trace::Open([&] {
    WriteSmallTrace(folder.path(), /*closed=*/true);
    return folder.path();
  }()));
  std::filesystem::remove(SegmentPath(folder));
  EXPECT_EQ(unopened->Verify(unopened->records()[0]).error().code(),
            ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace ttrace
