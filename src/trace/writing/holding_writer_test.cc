#include "src/trace/writing/holding_writer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "src/trace/testing/scratch_trace.h"
#include "src/trace/writing/held_values.h"
#include "src/trace/writing/writer_thread.h"

namespace ttrace::holding_writer_test {
namespace {

std::unique_ptr<TraceWriter> OpenHolding(const std::string& folder) {
  return HoldRecords(OpenRank(folder, 0, 1), folder);
}

// Two rows of a micro-batch of two.
RecordSpec RowsSpec(const std::string& fqn, Role role = Role::kOutput,
                    DType dtype = DType::kF32) {
  RecordSpec spec = PlainSpec(fqn, dtype, {2, 3});
  spec.role = role;
  spec.batch_dim = 0;
  return spec;
}

Occurrence InMicroBatch(int micro_batch, Pass pass = Pass::kForward) {
  Occurrence occurrence = RealOccurrence();
  occurrence.micro_batch = micro_batch;
  occurrence.row_begin = int64_t{2} * micro_batch;
  occurrence.pass = pass;
  return occurrence;
}

std::vector<int64_t> Batch(int64_t micro_batches) { return {micro_batches}; }

template <typename T>
Status AppendRows(TraceWriter& writer, const RecordSpec& spec,
                  const Occurrence& occurrence, const std::vector<T>& values) {
  const std::vector<int64_t> strides = {3, 1};
  return writer.Append(spec, occurrence,
                       {std::as_bytes(std::span(values)).data(), strides});
}

std::vector<float> Counting(float first) {
  std::vector<float> values(6);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::shared_ptr<const Trace> OpenTrace(const std::string& folder) {
  return OrDie(Trace::Open(folder));
}

TEST(HoldingWriter, WritesWhatIsHeldOnceTheGlobalBatchIsKnown) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenHolding(folder.path());
  OrDie(writer->Hold());
  OrDie(AppendRows(*writer, RowsSpec("x"), InMicroBatch(0), Counting(0)));
  OrDie(AppendFloats(*writer, "weight", {7, 8}));
  OrDie(AppendRows(*writer, RowsSpec("x"), InMicroBatch(1), Counting(6)));
  OrDie(writer->Release(Batch(2)));
  OrDie(AppendFloats(*writer, "later", {9}));
  OrDie(writer->Seal(0, "real"));
  OrDie(writer->Close(true, ""));

  const auto opened = OpenTrace(folder.path());
  const Trace& trace = *opened;
  ASSERT_EQ(trace.records().size(), 4u);
  std::vector<std::string> names;
  for (const Record& record : trace.records()) names.push_back(record.id().fqn);
  EXPECT_EQ(names, (std::vector<std::string>{"x", "weight", "x", "later"}));
  const Record second = trace.records()[2];
  EXPECT_EQ(second.layout().global_shape(), (Shape{4, 3}));
  EXPECT_EQ(second.rows()->begin, 2);
  EXPECT_EQ(ReadFloats(trace, second), Counting(6));
  EXPECT_EQ(trace.records()[1].layout().global_shape(), (Shape{2}));
}

TEST(HoldingWriter, WritesTheSameOnAThread) {
  const ScratchFolder folder;
  const auto write = [](TraceWriter& writer) {
    std::vector<float> large(40'000);
    for (int k = 0; k < 20; ++k) {
      if (k % 10 == 0) OrDie(writer.Hold());
      std::iota(large.begin(), large.end(), static_cast<float>(k));
      OrDie(AppendFloats(writer, "large" + std::to_string(k), large, k / 10));
      if (k % 10 == 9) OrDie(writer.Release(Batch(1)));
      if (k % 10 == 9) OrDie(writer.Seal(k / 10, "real"));
    }
    OrDie(writer.Close(true, ""));
  };
  write(*OpenHolding(folder / "plain"));
  write(*WriteOnThread(OpenHolding(folder / "thread"), 16 * 1024));
  for (const char* file : {"index.jsonl", "segment-00000.safetensors"}) {
    const std::string name = std::string("/rank-00000.r0/") + file;
    EXPECT_GT(FileText(folder / ("plain" + name)).size(), 2'000u);
    EXPECT_EQ(FileText(folder / ("plain" + name)),
              FileText(folder / ("thread" + name)));
  }
}

TEST(HoldingWriter, AddsUpTermsOfAGradient) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenHolding(folder.path());
  OrDie(writer->Hold());
  const RecordSpec spec = RowsSpec("x", Role::kGradOutput);
  const Occurrence backward = InMicroBatch(0, Pass::kBackward);
  OrDie(AppendRows(*writer, spec, backward, Counting(0)));
  OrDie(AppendRows(*writer, spec, InMicroBatch(1, Pass::kBackward),
                   Counting(100)));
  OrDie(AppendRows(*writer, spec, backward, Counting(10)));
  // Of the same name, and no sum: what a module gives twice is two records.
  OrDie(AppendRows(*writer, RowsSpec("x"), InMicroBatch(0), Counting(1)));
  OrDie(AppendRows(*writer, RowsSpec("x"), InMicroBatch(0), Counting(2)));
  OrDie(writer->Release(Batch(2)));
  OrDie(writer->Close(true, ""));
  const auto opened = OpenTrace(folder.path());
  const Trace& trace = *opened;
  ASSERT_EQ(trace.records().size(), 4u);
  EXPECT_EQ(ReadFloats(trace, trace.records()[0]),
            (std::vector<float>{10, 12, 14, 16, 18, 20}));
  EXPECT_EQ(ReadFloats(trace, trace.records()[1]), Counting(100));
}

TEST(HoldingWriter, RoundsSumsAsTheirDtype) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenHolding(folder.path());
  OrDie(writer->Hold());
  const RecordSpec spec = RowsSpec("x", Role::kGradInput, DType::kBF16);
  const auto as_bf16 = [](float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  };
  // 256 + 1 is no bfloat16: it is 256, and once more.
  const Occurrence backward = InMicroBatch(0, Pass::kBackward);
  for (const float term : {256.0F, 1.0F, 1.0F}) {
    OrDie(AppendRows(*writer, spec, backward,
                     std::vector<uint16_t>(6, as_bf16(term))));
  }
  OrDie(writer->Release(Batch(1)));
  OrDie(writer->Close(true, ""));
  const auto opened = OpenTrace(folder.path());
  const Trace& trace = *opened;
  ASSERT_EQ(trace.records().size(), 1u);
  std::vector<uint16_t> values(6);
  OrDie(trace.Read(trace.records()[0], 0,
                   std::as_writable_bytes(std::span(values))));
  EXPECT_EQ(values, std::vector<uint16_t>(6, as_bf16(256.0F)));
}

TEST(HoldingWriter, AmendsWhatBecomesKnownLater) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenHolding(folder.path());
  OrDie(writer->Hold());
  OrDie(AppendRows(*writer, RowsSpec("x", Role::kInput), InMicroBatch(1),
                   Counting(0)));
  // These two rows are the second half of a micro-batch of four.
  RecordSpec cut = RowsSpec("x", Role::kInput);
  cut.global_shape = {4, 3};
  Occurrence place = InMicroBatch(1);
  place.row_begin = 6;
  OrDie(writer->Amend(cut, place));
  EXPECT_FALSE(writer->Amend(RowsSpec("y", Role::kInput), place).ok());
  OrDie(writer->Release(Batch(2)));
  OrDie(writer->Close(true, ""));
  const auto opened = OpenTrace(folder.path());
  const Trace& trace = *opened;
  ASSERT_EQ(trace.records().size(), 1u);
  EXPECT_EQ(trace.records()[0].layout().global_shape(), (Shape{8, 3}));
  EXPECT_EQ(trace.records()[0].rows()->begin, 6);
}

TEST(HoldingWriter, KnowsSeveralBatchesOfAnIteration) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenHolding(folder.path());
  OrDie(writer->Hold());
  for (const int batch : {1, 0, 2}) {
    Occurrence occurrence = InMicroBatch(0);
    occurrence.batch = batch;
    OrDie(AppendRows(*writer, RowsSpec("x" + std::to_string(batch)), occurrence,
                     Counting(0)));
  }
  EXPECT_FALSE(writer->Release(std::vector<int64_t>{1, 3}).ok());
  OrDie(writer->Close(true, ""));
  const auto opened = OpenTrace(folder.path());
  ASSERT_EQ(opened->records().size(), 2u);
  EXPECT_EQ(opened->records()[0].layout().global_shape(), (Shape{6, 3}));
  EXPECT_EQ(opened->records()[1].layout().global_shape(), (Shape{2, 3}));
}

TEST(HoldingWriter, ForgetsWhatIsDroppedAndWhatIsNeverReleased) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenHolding(folder.path());
  EXPECT_FALSE(writer->Release(Batch(1)).ok());
  OrDie(writer->Hold());
  EXPECT_FALSE(writer->Hold().ok());
  OrDie(AppendFloats(*writer, "dropped", {1}));
  OrDie(writer->Drop());
  OrDie(writer->Hold());
  OrDie(AppendFloats(*writer, "kept", {2}));
  OrDie(writer->Release(Batch(1)));
  OrDie(writer->Hold());
  OrDie(AppendFloats(*writer, "unfinished", {3}, 1));
  EXPECT_FALSE(writer->Seal(1, "real").ok());
  OrDie(writer->Close(false, "it ended"));
  const auto opened = OpenTrace(folder.path());
  const Trace& trace = *opened;
  ASSERT_EQ(trace.records().size(), 1u);
  EXPECT_EQ(trace.records()[0].id().fqn, "kept");
}

TEST(HoldingWriter, RefusesWhatNoWriterTakes) {
  const ScratchFolder folder;
  const auto writer = OpenHolding(folder.path());
  OrDie(writer->Hold());
  const RecordSpec spec = PlainSpec("x", DType::kF32, {2});
  EXPECT_FALSE(writer->Append(spec, RealOccurrence(), {nullptr, {}}).ok());
  OrDie(AppendFloats(*writer, "fine", {2}));
  OrDie(writer->Release(Batch(1)));
  OrDie(writer->Close(true, ""));
}

TEST(HeldValues, ReadsAndReplacesInMemoryAndInTheFile) {
  const ScratchFolder folder;
  HeldValues values(folder.path(), 8);
  const auto bytes = [](const std::string& text) {
    return std::as_bytes(std::span(text));
  };
  for (int round = 0; round < 2; ++round) {
    for (const std::string text : {"abcde", "fghij", "kl"}) {
      OrDie(values.Add(bytes(text)));
    }
    EXPECT_EQ(values.end(), 12);
    const std::string replaced = "IJKL";
    OrDie(values.Replace(8, bytes(replaced)));
    std::string out(12, ' ');
    OrDie(values.Read(0, std::as_writable_bytes(std::span(out))));
    EXPECT_EQ(out, "abcdefghIJKL");
    values.Clear();
    EXPECT_EQ(values.end(), 0);
  }
}

}  // namespace
}  // namespace ttrace::holding_writer_test
