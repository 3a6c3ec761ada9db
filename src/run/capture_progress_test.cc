#include "src/run/capture_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "src/trace/format.h"
#include "src/trace/writer.h"

namespace ttrace::capture_progress_test {
namespace {

class CaptureMeterTest : public testing::Test {
 protected:
  CaptureMeterTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("meter." + std::to_string(getpid()) + "." + info->name());
    std::filesystem::create_directories(folder_);
  }
  ~CaptureMeterTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<TraceWriter> Rank(int rank) {
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = 2;
    meta.mesh.dims = {{"dp", 2}};
    meta.coordinate = {rank};
    auto writer = TraceWriter::Open(folder_, meta);
    EXPECT_TRUE(writer.ok());
    return *std::move(writer);
  }

  // An execution of an iteration: one record and the seal.
  static void Run(TraceWriter& writer, int iteration, const std::string& leg,
                  float value) {
    RecordSpec spec;
    spec.fqn = R"("leg":"none","iteration":9)";
    spec.arg = "0";
    spec.local_shape = {4};
    spec.global_shape = {4};
    Occurrence occurrence;
    occurrence.leg = Leg(leg);
    occurrence.iteration = iteration;
    const std::array<float, 4> values = {value, 2, 3, 4};
    const std::array<int64_t, 1> strides = {1};
    ASSERT_TRUE(writer
                    .Append(spec, occurrence,
                            {std::as_bytes(std::span(values)).data(), strides})
                    .ok());
    ASSERT_TRUE(writer.Seal(iteration, Leg(leg)).ok());
  }

  static CaptureCost TwoReruns() {
    return {.ranks = 2, .legs = 2, .fp32_legs = 1};
  }

  std::string folder_;
};

TEST_F(CaptureMeterTest, CountsWhatAllRanksWroteAndNamesThePlaceOfTheSlowest) {
  CaptureMeter meter(folder_, {.begin = 0, .end = 2}, true);
  EXPECT_EQ(meter.Look(0).iteration, -1);
  auto first = Rank(0);
  auto second = Rank(1);
  Run(*first, 0, "real", 1);
  Run(*second, 0, "real", 2);
  Run(*second, 0, "replay", 3);
  const CaptureProgress progress = meter.Look(1);
  EXPECT_EQ(progress.records, 3);
  EXPECT_EQ(progress.bytes, 3 * 16);
  EXPECT_EQ(progress.iteration, 0);
  EXPECT_EQ(progress.leg, kReal);
  EXPECT_EQ(progress.parts, 1);
  // Which reruns there will be the ranks have yet to say.
  EXPECT_EQ(progress.parts_total, 0);
  meter.SetCost(TwoReruns());
  EXPECT_EQ(meter.Look(1).parts_total, 2 * 3);
}

TEST_F(CaptureMeterTest, TimeLeftIsKnownOnceEachKindOfPartWasSeen) {
  CaptureMeter meter(folder_, {.begin = 0, .end = 2}, true);
  meter.SetCost(TwoReruns());
  auto rank = Rank(0);
  EXPECT_FALSE(meter.Look(5).seconds_left);
  Run(*rank, 0, "real", 1);
  EXPECT_FALSE(meter.Look(10).seconds_left);  // it took the start as well
  Run(*rank, 0, "replay", 2);
  EXPECT_FALSE(meter.Look(12).seconds_left);  // how long is fp32?
  Run(*rank, 0, "fp32", 3);
  // To come: real and replay of 2 s each, and fp32 of 6 s.
  EXPECT_DOUBLE_EQ(meter.Look(18).seconds_left.value_or(-1), 10);
  EXPECT_DOUBLE_EQ(meter.Look(19).seconds_left.value_or(-1), 9);
}

TEST_F(CaptureMeterTest, BytesOfFinishedSegmentsStayCounted) {
  const std::filesystem::path rank =
      std::filesystem::path(folder_) / RankFolderName({0, 0});
  std::filesystem::create_directories(rank);
  const auto segment = [&](int number, int64_t bytes) {
    const auto path = rank / SegmentFileName(number);
    std::ofstream(path).close();
    std::filesystem::resize_file(
        path, static_cast<uintmax_t>(kSegmentHeaderBytes + bytes));
  };
  CaptureMeter meter(folder_, {}, false);
  segment(0, 100);
  EXPECT_EQ(meter.Look(0).bytes, 100);
  segment(0, 200);
  segment(1, 0);
  segment(2, 7);
  const CaptureProgress progress = meter.Look(2);
  EXPECT_EQ(progress.bytes, 207);
  EXPECT_DOUBLE_EQ(progress.bytes_per_second, 107 / 2.0);
}

TEST_F(CaptureMeterTest, ARestartedRankBeginsAnew) {
  auto first = Rank(0);
  Run(*first, 0, "real", 1);
  CaptureMeter meter(folder_, {}, false);
  EXPECT_EQ(meter.Look(1).records, 1);
  auto again = Rank(0);
  EXPECT_EQ(meter.Look(2).records, 0);
}

TEST(IndexTail, ReadsALineOnceItIsWholeAndPassesOverOthers) {
  const std::string path =
      testing::TempDir() + "/tail." + std::to_string(getpid());
  const auto add = [&](const std::string& text) {
    std::ofstream(path, std::ios::app) << text;
  };
  IndexTail tail(path);
  tail.Update();  // there is no file yet
  EXPECT_EQ(tail.records(), 0);
  add(R"({"type":"note","kind":"x","data":{"type":"record","leg":"a"}})"
      "\nno json\n"
      R"({"type":"record","sequence":0,"spec":0,"leg":"noi)");
  tail.Update();
  EXPECT_EQ(tail.records(), 0);
  add("se.1\",\"iteration\":3,\"call\":0}\n{\"type\":\"seal\",");
  tail.Update();
  EXPECT_EQ(tail.records(), 1);
  EXPECT_EQ(tail.iteration(), 3);
  EXPECT_EQ(tail.leg().name(), "noise.1");
  EXPECT_THAT(tail.sealed(), testing::IsEmpty());
  add("\"iteration\":3,\"leg\":\"noise.1\"}\n");
  tail.Update();
  EXPECT_THAT(tail.sealed(),
              testing::ElementsAre(std::pair(3, Leg("noise.1"))));
  std::filesystem::remove(path);
}

TEST(TimeLeft, APartThatTakesLongerThanAnyDidIsNotExpectedToEndNow) {
  TimeLeft left;
  left.Ended({"real"}, 10);
  left.Ended({"replay", "noise.1"}, 14);
  EXPECT_DOUBLE_EQ(left.Of({.as_trained = 3}, 15).value_or(-1), 5);
  EXPECT_DOUBLE_EQ(left.Of({.as_trained = 3}, 90).value_or(-1), 4);
  EXPECT_DOUBLE_EQ(left.Of({}, 90).value_or(-1), 0);
  EXPECT_FALSE(left.Of({.as_trained = 1, .fp32 = 1}, 15));
}

}  // namespace
}  // namespace ttrace::capture_progress_test
