// What is appended is what is read, for every dtype and every way in which a
// tensor lies in memory.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::round_trip_test {
namespace {

std::vector<std::byte> ReadBytes(const Trace& trace, const Record& record) {
  std::vector<std::byte> bytes(static_cast<size_t>(record.extent().bytes));
  OrDie(trace.Read(record, 0, bytes));
  OrDie(trace.Verify(record));
  return bytes;
}

TEST(RoundTrip, EveryDtypeAndStride) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  std::vector<std::byte> memory(2048);
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::byte>(i * 7);
  }
  const std::byte* middle = memory.data() + 1024;
  const Shape shape = {3, 4};
  const std::vector<std::vector<int64_t>> all_strides = {
      {4, 1}, {1, 3}, {0, 0}, {-4, -1}, {8, 2}, {0, 1}, {1, 0}};
  {
    const auto writer = OpenRank(folder.path(), 0, 1);
    for (int i = 0; i < kDTypeCount; ++i) {
      for (const auto& strides : all_strides) {
        OrDie(writer->Append(PlainSpec("x", static_cast<DType>(i), shape),
                             RealOccurrence(), {middle, strides}));
      }
    }
    OrDie(writer->Close(true, ""));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  ASSERT_EQ(trace->records().size(), kDTypeCount * all_strides.size());
  size_t next = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto itemsize =
        static_cast<int64_t>(Info(static_cast<DType>(i)).itemsize);
    for (const auto& strides : all_strides) {
      std::vector<std::byte> expected;
      for (int64_t r = 0; r < shape[0]; ++r) {
        for (int64_t c = 0; c < shape[1]; ++c) {
          const std::byte* at =
              middle + (r * strides[0] + c * strides[1]) * itemsize;
          expected.insert(expected.end(), at, at + itemsize);
        }
      }
      const Record& record = trace->records()[next++];
      EXPECT_EQ(record.dtype(), static_cast<DType>(i));
      EXPECT_EQ(ReadBytes(*trace, record), expected);
    }
  }
}

TEST(RoundTrip, ScalarsAndEmptyTensors) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  const double value = -0.5;
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  {
    const auto writer = OpenRank(folder.path(), 0, 1);
    const std::vector<int64_t> strides = {0, 0};
    OrDie(writer->Append(PlainSpec("empty", DType::kF32, {0, 5}),
                         RealOccurrence(), {nullptr, strides}));
    OrDie(writer->Append(PlainSpec("scalar", DType::kF64, {}), RealOccurrence(),
                         {bytes, {}}));
    OrDie(writer->Append(PlainSpec("empty", DType::kBool, {5, 0}),
                         RealOccurrence(), {nullptr, strides}));
    OrDie(writer->Close(true, ""));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  ASSERT_EQ(trace->records().size(), 3u);
  EXPECT_TRUE(ReadBytes(*trace, trace->records()[0]).empty());
  EXPECT_EQ(ReadBytes(*trace, trace->records()[1]),
            std::vector<std::byte>(bytes, bytes + 8));
  EXPECT_TRUE(ReadBytes(*trace, trace->records()[2]).empty());
}

TEST(RoundTrip, KeepsEverythingThatIsNotBytes) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), R"({"run_id": "r-1", "steps": 2})",
                          false));
  RankMeta meta;
  meta.rank = 2;
  meta.world_size = 4;
  meta.mesh.dims = {{"dp", 2}, {"tp", 2}};
  meta.coordinate = {1, 0};
  meta.adapter_json = R"({ "framework": "torch", "tied": true })";
  meta.run_id = "r-1";
  RecordSpec spec;
  spec.fqn = "layer";
  spec.role = Role::kGradInput;
  spec.arg = "hidden";
  spec.dtype = DType::kF32;
  spec.local_shape = {2, 2};
  spec.global_shape = {4, 8};
  spec.placements = {{"tp", Shard{0}}, {"dp", Replicate{}}};
  spec.batch_dim = 1;
  spec.scale = {1, 2};
  spec.reduced_over = {"dp"};
  Occurrence occurrence;
  occurrence.leg = "noise.1";
  occurrence.iteration = 3;
  occurrence.call = 4;
  occurrence.pass = Pass::kRecompute;
  occurrence.micro_batch = 1;
  occurrence.row_begin = 6;
  const std::vector<float> values = {1, 2, 3, 4};
  const std::vector<int64_t> strides = {2, 1};
  {
    const auto writer = OrDie(TraceWriter::Open(folder.path(), meta));
    OrDie(writer->Append(spec, occurrence,
                         {std::as_bytes(std::span(values)).data(), strides}));
    OrDie(writer->Note("notice", R"({"n": 1})"));
    OrDie(writer->Seal(3, "noise.1"));
    OrDie(writer->Close(false, "the user said so"));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  EXPECT_EQ(trace->world_size(), 4);
  EXPECT_EQ(trace->mesh(), meta.mesh);
  EXPECT_EQ(trace->coordinate(2), meta.coordinate);
  EXPECT_EQ(trace->missing_ranks(), (std::vector<int>{0, 1, 3}));
  EXPECT_NE(trace->manifest_json().find("\"steps\": 2"), std::string::npos);
  ASSERT_EQ(trace->ranks().size(), 1u);
  const RankTrace& rank = trace->ranks()[0];
  EXPECT_EQ(rank.meta.adapter_json, R"({"framework":"torch","tied":true})");
  ASSERT_EQ(rank.notes.size(), 1u);
  EXPECT_EQ(rank.notes[0].rank, 2);
  EXPECT_EQ(rank.notes[0].kind, "notice");
  EXPECT_EQ(rank.notes[0].json, R"({"n":1})");
  EXPECT_EQ(rank.sealed, (std::vector<std::pair<int, Leg>>{{3, "noise.1"}}));
  EXPECT_TRUE(rank.closed);
  EXPECT_FALSE(rank.complete);
  EXPECT_EQ(rank.incomplete_reason, "the user said so");

  ASSERT_EQ(trace->records().size(), 1u);
  const Record& record = trace->records()[0];
  EXPECT_EQ(record.rank(), 2);
  EXPECT_EQ(record.id(), (TensorId{"layer", Role::kGradInput, 3, 4, "hidden",
                                   Pass::kRecompute}));
  EXPECT_EQ(record.leg(), "noise.1");
  EXPECT_EQ(record.micro_batch(), 1);
  EXPECT_EQ(record.placements(), spec.placements);
  EXPECT_EQ(record.scale(), spec.scale);
  EXPECT_EQ(record.reduced_over(), spec.reduced_over);
  EXPECT_EQ(record.rows(), (BatchRows{1, 6, 2, 8}));
  EXPECT_EQ(record.layout().dims[0].segments, (std::vector<Segment>{{0, 2}}));
  EXPECT_EQ(record.layout().dims[1].segments, (std::vector<Segment>{{6, 2}}));
  EXPECT_EQ(ReadFloats(*trace, record), values);
}

TEST(RoundTrip, ManySmallTensorsFillSeveralSegments) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  constexpr int kCount = 9000;  // more entries than two headers hold
  {
    const auto writer = OpenRank(folder.path(), 0, 1);
    for (int i = 0; i < kCount; ++i) {
      OrDie(AppendFloats(*writer, "x", {static_cast<float>(i)}));
    }
    OrDie(writer->Close(true, ""));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  ASSERT_EQ(trace->records().size(), static_cast<size_t>(kCount));
  EXPECT_GT(trace->records().back().extent().segment, 1);
  for (int i = 0; i < kCount; i += 97) {
    const Record& record = trace->records()[static_cast<size_t>(i)];
    EXPECT_EQ(ReadFloats(*trace, record),
              std::vector<float>{static_cast<float>(i)});
  }
}

TEST(RoundTrip, ASegmentDoesNotGrowBeyondItsLimit) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  const int64_t count = (kMaxSegmentBytes - kSegmentHeaderBytes) / 2;
  const std::vector<int64_t> strides = {0};
  const auto byte = std::byte{1};
  {
    const auto writer = OpenRank(folder.path(), 0, 1);
    for (int i = 0; i < 3; ++i) {
      OrDie(writer->Append(PlainSpec("half", DType::kU8, {count}),
                           RealOccurrence(), {&byte, strides}));
    }
    OrDie(writer->Close(true, ""));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  ASSERT_EQ(trace->records().size(), 3u);
  EXPECT_EQ(trace->records()[1].extent().segment, 0) << "it just fits";
  EXPECT_EQ(trace->records()[2].extent().segment, 1);
  EXPECT_EQ(std::filesystem::file_size(folder / "rank-00000.r0" + "/" +
                                       SegmentFileName(0)),
            static_cast<uintmax_t>(kMaxSegmentBytes));
}

TEST(RoundTrip, ALargeTensorGetsASegmentOfItsOwn) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  const int64_t count = kMaxSegmentBytes + 10;
  const std::vector<int64_t> strides = {0};
  const auto byte = std::byte{42};
  {
    const auto writer = OpenRank(folder.path(), 0, 1);
    OrDie(AppendFloats(*writer, "before", {1}));
    OrDie(writer->Append(PlainSpec("large", DType::kU8, {count}),
                         RealOccurrence(), {&byte, strides}));
    OrDie(AppendFloats(*writer, "after", {2}));
    OrDie(writer->Close(true, ""));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  ASSERT_EQ(trace->records().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(trace->records()[static_cast<size_t>(i)].extent().segment, i);
  }
  std::vector<std::byte> end(10);
  OrDie(trace->Read(trace->records()[1], count - 10, end));
  EXPECT_EQ(end, std::vector<std::byte>(10, byte));
  EXPECT_EQ(ReadFloats(*trace, trace->records()[2]), std::vector<float>{2});
}

}  // namespace
}  // namespace ttrace::round_trip_test
