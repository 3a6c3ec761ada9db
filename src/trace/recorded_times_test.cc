#include "src/trace/recorded_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/trace/testing/scratch_trace.h"
#include "src/trace/writing/record_times.h"

namespace ttrace::recorded_times_test {
namespace {

using testing::HasSubstr;
using testing::Not;

// One rank of one float for each of these times.
std::string WriteTimes(const ScratchFolder& scratch,
                       const std::vector<int64_t>& times_us) {
  const std::string folder = scratch / "t";
  OrDie(CreateTraceFolder(folder, "{}", true));
  const auto writer = OpenRank(folder, 0, 1);
  const std::vector<float> values = {1};
  const std::vector<int64_t> strides = {1};
  for (const int64_t time_us : times_us) {
    Occurrence at = RealOccurrence();
    at.time_us = time_us;
    OrDie(writer->Append(PlainSpec("w", DType::kF32, {1}), at,
                         {std::as_bytes(std::span(values)).data(), strides}));
  }
  OrDie(writer->Seal(0, "real"));
  OrDie(writer->Close(true, ""));
  return folder;
}

RecordedTimes ReadTimes(const std::string& folder) {
  return ReadRecordedTimes(OrDie(Trace::Open(folder))->ranks().front());
}

RecordedTimes ReadNote(const std::string& json) {
  RankTrace rank;
  rank.notes = {{0, std::string(kRecordTimesNote), json}};
  return ReadRecordedTimes(rank);
}

TEST(RecordedTimes, AreThoseThatWereWritten) {
  const ScratchFolder scratch;
  // What was deferred lies back in time.
  const std::vector<int64_t> times = {1'000'000, 1'000'003, 1'000'001, 9};
  const RecordedTimes read = ReadTimes(WriteTimes(scratch, times));
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(read.At(static_cast<int64_t>(i)), times[i]) << i;
  }
  EXPECT_EQ(read.At(4), std::nullopt);
  EXPECT_EQ(read.At(-1), std::nullopt);
  ASSERT_TRUE(read.clocks.has_value());
  EXPECT_GT(read.clocks->realtime_us, 0);
  EXPECT_EQ(read.clocks->boot.size(), 36u);
}

TEST(RecordedTimes, ARecordWithoutOneHasNone) {
  const ScratchFolder scratch;
  const RecordedTimes read = ReadTimes(WriteTimes(scratch, {5, -1, 7}));
  EXPECT_EQ(read.At(0), 5);
  EXPECT_EQ(read.At(1), std::nullopt);
  EXPECT_EQ(read.At(2), 7);
}

TEST(RecordedTimes, WhereNoneAreKnownNothingIsWritten) {
  const ScratchFolder scratch;
  const std::string folder = WriteTimes(scratch, {-1, -1});
  EXPECT_THAT(FileText(folder + "/rank-00000.r0/index.jsonl"),
              Not(HasSubstr("note")));
  EXPECT_FALSE(ReadTimes(folder).clocks.has_value());
}

TEST(RecordedTimes, AreTakenBeforeTheirLineIsTooLong) {
  RecordTimes times;
  int64_t time_us = 0;
  int64_t count = 0;
  while (!times.full()) {
    time_us = time_us == 0 ? int64_t{5} << 50 : 0;
    times.Add(count++, time_us);
  }
  const std::string json = times.TakeJson();
  EXPECT_LT(json.size(), kMaxIndexLineBytes - 1000);
  EXPECT_TRUE(times.empty());
  EXPECT_EQ(ReadNote(json).At(count - 1), time_us);
}

TEST(RecordedTimes, NotesThatMakeNoSenseAreLeftOut) {
  EXPECT_EQ(ReadNote(R"({"first":0,"begin_us":1,"steps_us":[2]})").At(1), 3);
  for (const char* json :
       {R"([])", R"({})", R"({"first":-1,"begin_us":1,"steps_us":[]})",
        R"({"first":0,"begin_us":-1,"steps_us":[]})",
        R"({"first":0,"begin_us":1,"steps_us":3})",
        R"({"first":0,"begin_us":1,"steps_us":["x"]})",
        R"({"first":0,"begin_us":1,"steps_us":[-2]})",
        R"({"first":0,"begin_us":1,"steps_us":[9223372036854775807]})",
        R"({"first":0,"begin_us":1,"steps_us":[18446744073709551615]})",
        R"({"first":18446744073709551615,"begin_us":1,"steps_us":[]})"}) {
    EXPECT_TRUE(ReadNote(json).runs.empty()) << json;
  }
}

}  // namespace
}  // namespace ttrace::recorded_times_test
