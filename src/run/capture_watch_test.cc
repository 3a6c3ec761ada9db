#include "src/run/capture_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "src/run/duration.h"
#include "src/run/stall_notice.h"
#include "src/trace/writer.h"

namespace ttrace::capture_watch_test {
namespace {

using ::testing::HasSubstr;

class CaptureWatchTest : public testing::Test {
 protected:
  CaptureWatchTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("watch." + std::to_string(getpid()) + "." + info->name());
    std::filesystem::create_directories(folder_);
  }
  ~CaptureWatchTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<TraceWriter> Rank(int rank, int world_size) {
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = world_size;
    meta.mesh.dims = {{"dp", world_size}};
    meta.coordinate = {rank};
    auto writer = TraceWriter::Open(folder_, meta);
    EXPECT_TRUE(writer.ok());
    return *std::move(writer);
  }

  static void Write(TraceWriter& writer, const std::string& fqn) {
    // Lines are collected for a moment.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    RecordSpec spec;
    spec.fqn = fqn;
    spec.arg = "0";
    spec.local_shape = {2};
    spec.global_shape = {2};
    Occurrence occurrence;
    occurrence.leg = "noise.2";
    occurrence.iteration = 1;
    const std::array<float, 2> values = {1, 2};
    const std::array<int64_t, 1> strides = {1};
    ASSERT_TRUE(writer
                    .Append(spec, occurrence,
                            {std::as_bytes(std::span(values)).data(), strides})
                    .ok());
  }

  std::filesystem::path folder_;
};

TEST_F(CaptureWatchTest, NamesTheLastRecordOfEachRankTheOddOneFirst) {
  auto first = Rank(0, 4);
  auto second = Rank(1, 4);
  auto third = Rank(2, 4);
  for (TraceWriter* writer : {first.get(), second.get(), third.get()}) {
    Write(*writer, "decoder.layers.3");
  }
  Write(*third, "decoder.layers.4");
  // A remark is no place.
  ASSERT_TRUE(third->Note("notice", R"({"text":"hello"})").ok());
  CaptureWatch watch(folder_);
  watch.Update();
  EXPECT_EQ(watch.LastRecords(),
            "rank 2: output of decoder.layers.4 (iteration 1, leg noise.2); "
            "rank 3: has not begun to capture; "
            "ranks 0-1: output of decoder.layers.3 (iteration 1, leg noise.2)");
  ASSERT_TRUE(third->Seal(1, "noise.2").ok());
  watch.Update();
  EXPECT_THAT(watch.LastRecords(),
              HasSubstr("rank 2: leg noise.2 of iteration 1 is complete"));
}

TEST_F(CaptureWatchTest, ARankThatGaveUpIsClosedAndNotComplete) {
  auto first = Rank(0, 2);
  auto second = Rank(1, 2);
  ASSERT_TRUE(first->Close(true, "").ok());
  ASSERT_TRUE(second->Close(false, "the process ended").ok());
  CaptureWatch watch(folder_);
  watch.Update();
  EXPECT_TRUE(watch.AllClosed());
  EXPECT_FALSE(watch.AllComplete());
}

TEST_F(CaptureWatchTest, StallNoticesBecomeRarerUntilSomethingIsWritten) {
  using std::chrono::seconds;
  auto writer = Rank(0, 1);
  Write(*writer, "a");
  CaptureWatch watch(folder_);
  watch.Update();
  const auto start = watch.last_growth();
  StallNotice notice(60);
  EXPECT_EQ(notice.Look(watch, start + seconds(59)), "");
  EXPECT_THAT(notice.Look(watch, start + seconds(130)),
              HasSubstr("no rank wrote for 130 s; last record of each rank: "
                        "rank 0: output of a"));
  EXPECT_EQ(notice.Look(watch, start + seconds(259)), "");
  EXPECT_NE(notice.Look(watch, start + seconds(261)), "");
  EXPECT_EQ(notice.Look(watch, start + seconds(500)), "");
  Write(*writer, "b");
  watch.Update();
  const auto again = watch.last_growth();
  EXPECT_EQ(notice.Look(watch, again + seconds(59)), "");
  EXPECT_THAT(notice.Look(watch, again + seconds(61)),
              HasSubstr("output of b"));
  ASSERT_TRUE(writer->Close(true, "").ok());
  watch.Update();
  EXPECT_EQ(notice.Look(watch, again + seconds(9999)), "") << "it is complete";
}

TEST_F(CaptureWatchTest, NoNoticeIfNoneIsWanted) {
  CaptureWatch watch(folder_);
  StallNotice never(0);
  const auto later = watch.last_growth() + std::chrono::hours(9);
  EXPECT_EQ(never.Look(watch, later), "");
  StallNotice notice(60);
  EXPECT_THAT(notice.Look(watch, later), HasSubstr("begun to capture"));
}

TEST(Duration, IsANumberWithAUnit) {
  EXPECT_EQ(*ParseDuration("90"), 90);
  EXPECT_EQ(*ParseDuration("90s"), 90);
  EXPECT_EQ(*ParseDuration("1.5m"), 90);
  EXPECT_EQ(*ParseDuration("2h"), 7200);
  EXPECT_EQ(*ParseDuration("0"), 0);
  for (const char* text :
       {"", "s", "-1", "1x", "1ms", "nan", "inf", "1 m", "1e99"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

}  // namespace
}  // namespace ttrace::capture_watch_test
