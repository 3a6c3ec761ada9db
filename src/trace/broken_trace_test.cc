// Whatever happens to the files, the answer is a Trace or an Error.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::broken_trace_test {
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
    static_cast<void>(trace.coordinate(record.rank()));
    EXPECT_EQ(record.layout().local_shape(), record.local_shape());
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

TEST(BrokenIndex, AnyFlippedBitIsNoticed) {
  for (const bool closed : {true, false}) {
    const ScratchFolder folder;
    WriteSmallTrace(folder.path(), closed);
    const std::string text = FileText(IndexPath(folder));
    for (size_t i = 0; i < text.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        SetFileByte(IndexPath(folder), i,
                    static_cast<char>(text[i] ^ (1 << bit)));
        const auto trace = Trace::Open(folder.path());
        if (trace.ok()) {
          // Without its '\n' the last line is one that was cut.
          ASSERT_EQ(i, text.size() - 1) << bit;
          EXPECT_EQ((*trace)->ranks()[0].dropped_lines, 1);
          EXPECT_FALSE((*trace)->ranks()[0].complete);
          continue;
        }
        ASSERT_EQ(trace.error().code(), ErrorCode::kCorrupt);
        ASSERT_NE(trace.error().message().find("rank-00000.r0/"),
                  std::string::npos)
            << trace.error().message();
      }
      SetFileByte(IndexPath(folder), i, text[i]);
    }
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

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin) + 1;
    lines.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return lines;
}

TEST(BrokenIndex, ALineThatIsRemovedRepeatedOrMovedIsNoticed) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/false);
  const std::vector<std::string> lines = LinesOf(FileText(IndexPath(folder)));
  const auto expect_noticed = [&](const std::vector<std::string>& changed,
                                  size_t line) {
    std::string text;
    for (const std::string& one : changed) text += one;
    SetFileText(IndexPath(folder), text);
    const auto trace = Trace::Open(folder.path());
    EXPECT_EQ(CodeOf(trace), ErrorCode::kCorrupt) << text;
    EXPECT_NE(trace.error().message().find("index.jsonl: line " +
                                           std::to_string(line + 1) + ": "),
              std::string::npos)
        << trace.error().message();
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    auto repeated = lines;
    repeated.insert(repeated.begin() + static_cast<std::ptrdiff_t>(i),
                    lines[i]);
    expect_noticed(repeated, i + 1);
    if (i + 1 == lines.size()) break;  // Without its last line it was cut.
    auto removed = lines;
    removed.erase(removed.begin() + static_cast<std::ptrdiff_t>(i));
    expect_noticed(removed, i);
    auto moved = lines;
    std::swap(moved[i], moved[i + 1]);
    expect_noticed(moved, i);
  }
}

TEST(BrokenIndex, OfAnotherRankIsNoticed) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  for (int rank = 0; rank < 2; ++rank) {
    const auto writer = OpenRank(folder.path(), rank, 2);
    OrDie(AppendFloats(*writer, "x", {1, 2}));
    OrDie(writer->Close(true, ""));
  }
  // Alike but for the rank, and so is what they say of their bytes.
  std::filesystem::copy_file(folder / "rank-00001.r0/index.jsonl",
                             IndexPath(folder),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(CodeOf(Trace::Open(folder.path())), ErrorCode::kCorrupt);
}

TEST(BrokenIndex, OfATraceFromBeforeTheChecksumIsRead) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  RankMeta meta = TensorParallelMeta(0, 1);
  meta.chained = false;
  {
    const auto writer = OrDie(TraceWriter::Open(folder.path(), meta));
    OrDie(AppendFloats(*writer, "x", {1, 2}));
    OrDie(writer->Seal(0, "real"));
    OrDie(writer->Close(true, ""));
  }
  EXPECT_EQ(FileText(IndexPath(folder)).find("chain"), std::string::npos);
  const auto trace = OrDie(Trace::Open(folder.path()));
  EXPECT_EQ(ReadFloats(*trace, trace->records()[0]),
            (std::vector<float>{1, 2}));
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

// Rank, file and tensor.
void ExpectNamed(const Status& status, const std::string& segment,
                 const std::string& fqn) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kCorrupt);
  const std::string& message = status.error().message();
  EXPECT_NE(message.find(segment), std::string::npos) << message;
  EXPECT_NE(message.find(fqn), std::string::npos) << message;
  EXPECT_TRUE(message.starts_with("rank ")) << message;
}

TEST(BrokenSegment, NoByteOfADamagedTensorIsGivenOut) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  const std::string text = FileText(SegmentPath(folder));
  const auto begin = static_cast<size_t>(kSegmentHeaderBytes);
  SetFileByte(SegmentPath(folder), begin + 11,
              static_cast<char>(text[begin + 11] ^ 1));
  const auto trace = OrDie(Trace::Open(folder.path()));
  const Record& first = trace->records()[0];
  EXPECT_TRUE(trace->damaged().empty());
  // Neither the part that is as it was, nor the whole.
  for (const int64_t size : {4, 12}) {
    std::vector<std::byte> out(static_cast<size_t>(size));
    ExpectNamed(trace->Read(first, 0, out),
                "rank-00000.r0/segment-00000.safetensors", "first");
  }
  ExpectNamed(trace->Verify(first), "segment-00000", "first");
  ReadFloats(*trace, trace->records()[1]);
  OrDie(trace->Verify(trace->records()[2]));
  ASSERT_EQ(trace->damaged().size(), 1u) << "whatever became of the errors";
  EXPECT_EQ(trace->damaged()[0].record, first);

  const auto whole_at_once = OrDie(Trace::Open(folder.path()));
  std::vector<std::byte> out(12);
  EXPECT_FALSE(whole_at_once->Read(whole_at_once->records()[0], 0, out).ok());
  // A copy of a record is that record.
  const Record copy = whole_at_once->records()[0];
  EXPECT_FALSE(whole_at_once->Read(copy, 0, std::span(out).first(1)).ok());
}

TEST(BrokenSegment, ThoseOfTwoRanksSwappedAreNoticed) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  for (int rank = 0; rank < 2; ++rank) {
    const auto writer = OpenRank(folder.path(), rank, 2);
    OrDie(AppendFloats(*writer, "x", {static_cast<float>(rank), 7}));
    OrDie(writer->Close(true, ""));
  }
  const std::string other = folder / "rank-00001.r0/segment-00000.safetensors";
  std::filesystem::rename(SegmentPath(folder), folder / "spare");
  std::filesystem::rename(other, SegmentPath(folder));
  std::filesystem::rename(folder / "spare", other);
  const auto trace = OrDie(Trace::Open(folder.path()));
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::byte> out(4);
    const Record& record = trace->records()[static_cast<size_t>(rank)];
    ExpectNamed(trace->Read(record, 4, out), RankFolderName({rank, 0}), "x");
  }
  EXPECT_EQ(trace->damaged().size(), 2u);
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
  const Record& third = trace->records()[2];
  OrDie(trace->Verify(third));
  std::filesystem::resize_file(SegmentPath(folder),
                               static_cast<uintmax_t>(kSegmentHeaderBytes) + 5);
  float value = 0;
  EXPECT_EQ(trace->Read(third, 0, std::as_writable_bytes(std::span(&value, 1)))
                .error()
                .code(),
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
}  // namespace ttrace::broken_trace_test
