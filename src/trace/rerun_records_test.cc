// Records that stand for bytes of others, or for differences.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::rerun_records_test {
namespace {

using testing::HasSubstr;

// Of "noise.1" three bytes are kept, whatever its values are.
class ThreeBytes final : public Reducer {
 public:
  std::vector<Leg> BasesOf(const Leg& leg) const override {
    if (leg != "noise.1") return {};
    return {"real"};
  }
  bool IsBase(const RecordFields& record) const override {
    return record.leg == "real";
  }
  Result<std::optional<Reduced>> Reduce(const RecordFields&, const StridedView&,
                                        const RecordFields& base,
                                        WrittenRecords& written) override {
    std::vector<std::byte> values(static_cast<size_t>(base.extent.bytes));
    TTRACE_RETURN_IF_ERROR(written.Read(base, 0, values));
    Reduced out;
    // The values of the leg that is repeated can be read back.
    out.bytes = {std::byte{1}, std::byte{2}, values.back()};
    return std::optional<Reduced>(std::move(out));
  }
  Result<std::optional<Summarized>> Summarize(const RecordFields&,
                                              const StridedView&) override {
    return std::optional<Summarized>();
  }
  // Of all of "isolated" two bytes are kept, and the checksum's lowest.
  std::optional<Compared> Compare(const RecordFields& record,
                                  const StridedView&, uint64_t xxh3) override {
    if (record.leg != "isolated") return std::nullopt;
    return Compared{{"real"},
                    {std::byte{7}, std::byte{8}, std::byte(xxh3 & 0xff)}};
  }
};

class RerunRecords : public testing::Test {
 protected:
  // Three tensors of each leg; the second one is not repeated bit by bit.
  void Write(bool closed = true,
             const std::vector<Leg>& legs = {"real", "replay", "noise.1"}) {
    OrDie(CreateTraceFolder(folder_.path(), "{}", true));
    RankMeta meta = TensorParallelMeta(0, 1);
    meta.chained = false;  // so that a test can change lines
    const auto writer = OrDie(TraceWriter::Open(
        folder_.path(), meta, std::make_unique<ThreeBytes>()));
    for (const Leg& leg : legs) {
      for (int t = 0; t < 3; ++t) {
        const bool differs = t == 1 && (leg == "replay" || leg == "isolated");
        const std::vector<float> values = ValuesOf(t, differs ? 7.0F : 3.0F);
        Occurrence occurrence = RealOccurrence();
        occurrence.leg = leg;
        OrDie(writer->Append(
            PlainSpec("t" + std::to_string(t), DType::kF32, {kCount}),
            occurrence,
            {std::as_bytes(std::span(values)).data(),
             std::vector<int64_t>{1}}));
      }
      if (closed) OrDie(writer->Seal(0, leg));
    }
    if (closed) OrDie(writer->Close(true, ""));
  }

  // More bytes than are always written.
  static constexpr int64_t kCount = 1500;
  static std::vector<float> ValuesOf(int t, float last) {
    std::vector<float> values(kCount, 1.0F);
    values.front() = static_cast<float>(t);
    values.back() = last;
    return values;
  }

  std::string IndexPath() const {
    return folder_ / "rank-00000.r0/index.jsonl";
  }

  Result<std::shared_ptr<const Trace>> OpenWith(const std::string& from,
                                                const std::string& to) {
    Write();
    std::string text = FileText(IndexPath());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    SetFileText(IndexPath(), text);
    auto trace = Trace::Open(folder_.path());
    std::filesystem::remove_all(folder_.path());
    return trace;
  }

  void ExpectCorrupt(const std::string& from, const std::string& to) {
    const auto trace = OpenWith(from, to);
    ASSERT_FALSE(trace.ok()) << from << " as " << to;
    EXPECT_EQ(trace.error().code(), ErrorCode::kCorrupt) << to;
  }

  ScratchFolder folder_;
};

TEST_F(RerunRecords, AreReadAsWhatTheyStandFor) {
  Write();
  const auto trace = OrDie(Trace::Open(folder_.path()));
  ASSERT_EQ(trace->records().size(), 9U);
  const auto& records = trace->records();
  EXPECT_EQ(records[3].same_as(), 0);
  EXPECT_EQ(records[3].extent(), records[0].extent());
  EXPECT_FALSE(records[4].same_as()) << "differs in its last element";
  EXPECT_EQ(ReadFloats(*trace, records[3]), ValuesOf(0, 3));
  EXPECT_EQ(ReadFloats(*trace, records[4]), ValuesOf(1, 7));
  EXPECT_EQ(ReadFloats(*trace, records[5]), ValuesOf(2, 3));
  ASSERT_TRUE(records[7].measured());
  EXPECT_EQ(records[7].measured()->against, 1);
  const auto bytes = OrDie(trace->ReadInstead(records[7]));
  EXPECT_EQ(bytes, (std::vector<std::byte>{std::byte{1}, std::byte{2},
                                           std::byte{0x40}}));
  std::byte byte;
  const Status read = trace->Read(records[7], 0, {&byte, 1});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), ErrorCode::kIncomparable);
  EXPECT_THAT(read.error().message(), HasSubstr("noise.1"));
}

TEST_F(RerunRecords, ComparedWithAnotherRunHaveNoValues) {
  Write(true, {"real", "isolated", "noise.1"});
  const auto trace = OrDie(Trace::Open(folder_.path()));
  const auto& records = trace->records();
  ASSERT_EQ(records.size(), 9U);
  EXPECT_EQ(records[3].same_as(), 0)
      << "values that are there need no comparison";
  ASSERT_EQ(records[4].compared_with(), ComparedWith{"real"});
  EXPECT_FALSE(records[4].holds_values());
  EXPECT_EQ(records[4].payload(), Payload(KeptComparison{{"real"}, {}}));
  const std::vector<float> values = ValuesOf(1, 7);
  const auto checksum = std::byte(
      XXH3_64bits(values.data(), values.size() * sizeof(float)) & 0xff);
  EXPECT_EQ(OrDie(trace->ReadInstead(records[4])),
            (std::vector<std::byte>{std::byte{7}, std::byte{8}, checksum}));
  std::byte byte;
  const Status read = trace->Read(records[4], 0, {&byte, 1});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), ErrorCode::kIncomparable);
  EXPECT_THAT(read.error().message(), HasSubstr("--keep-values"));
}

TEST_F(RerunRecords, SharedBytesThatAreDamagedAreSaidOfWhoWroteThem) {
  Write();
  const std::string segment =
      folder_ / "rank-00000.r0/segment-00000.safetensors";
  SetFileByte(segment, static_cast<size_t>(kSegmentHeaderBytes), 'x');
  const auto trace = OrDie(Trace::Open(folder_.path()));
  EXPECT_FALSE(trace->Verify(trace->records()[3]).ok());
  EXPECT_FALSE(trace->Verify(trace->records()[0]).ok());
  ASSERT_EQ(trace->damaged().size(), 1U);
  EXPECT_EQ(trace->damaged().front().record, trace->records()[0]);
}

TEST_F(RerunRecords, ThatReferToNoEarlierRecordOfTheTensorAreCorrupt) {
  ExpectCorrupt("\"same_as\":0", "\"same_as\":99");
  ExpectCorrupt("\"same_as\":0", "\"same_as\":3");  // itself
  ExpectCorrupt("\"same_as\":0", "\"same_as\":2");  // another tensor
  ExpectCorrupt("\"same_as\":0", "\"same_as\":-1");
  ExpectCorrupt("\"same_as\":0", "\"same_as\":0,\"measured_against\":0");
  ExpectCorrupt("\"measured_against\":0", "\"measured_against\":2");
  ExpectCorrupt("\"measured_against\":0", "\"measured_against\":99");
  ExpectCorrupt("\"measured_against\":0", "\"same_as\":0");
  ExpectCorrupt("\"bytes\":3", "\"bytes\":6000");  // as many as the values
  ExpectCorrupt("\"bytes\":3", "\"bytes\":-3");
  ExpectCorrupt("\"bytes\":3", "\"bytes\":4");  // its segment knows better
}

TEST_F(RerunRecords, CutAnywhereInTheSegmentKeepWhatHasItsBytes) {
  Write(/*closed=*/false);
  const std::string segment =
      folder_ / "rank-00000.r0/segment-00000.safetensors";
  const auto size = static_cast<int64_t>(std::filesystem::file_size(segment));
  for (int64_t cut = size; cut >= kSegmentHeaderBytes; cut -= 37) {
    ASSERT_EQ(truncate(segment.c_str(), static_cast<off_t>(cut)), 0);
    const auto trace = Trace::Open(folder_.path());
    ASSERT_TRUE(trace.ok()) << cut << ": " << trace.error().message();
    for (const Record& record : (*trace)->records()) {
      EXPECT_LE(record.extent().offset + record.extent().bytes, cut);
      EXPECT_TRUE((*trace)->Verify(record).ok());
    }
  }
}

}  // namespace
}  // namespace ttrace::rerun_records_test
