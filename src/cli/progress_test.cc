#include "src/cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ttrace::progress_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CaptureProgress SomeCapture() {
  CaptureProgress progress;
  progress.world_size = 2;
  progress.iteration = 1;
  progress.leg = "noise.2";
  progress.parts = 12;
  progress.parts_total = 20;
  progress.records = 12345;
  progress.bytes = 3'400'000'000;
  progress.bytes_per_second = 2.1e8;
  progress.seconds = 62;
  progress.seconds_left = 185;
  return progress;
}

TEST(ProgressWords, SayWhereACaptureIs) {
  EXPECT_EQ(FittedLine(ProgressWords("reference", SomeCapture()), 200),
            "reference: iteration 1, leg noise.2, 12 of 20 steps, about 3 min "
            "05 s left, 1 min 02 s, 3.4 GB, 210 MB/s, 12,345 records");
}

TEST(ProgressWords, SayNothingOfWhatIsNotKnown) {
  CaptureProgress progress = SomeCapture();
  progress.parts_total = 0;
  progress.seconds_left.reset();
  progress.bytes_per_second = 0;
  EXPECT_EQ(
      FittedLine(ProgressWords("candidate", progress), 200),
      "candidate: iteration 1, leg noise.2, 12 steps, 1 min 02 s, 3.4 GB, "
      "12,345 records");
  progress.iteration = -1;
  EXPECT_THAT(ProgressWords("candidate", progress).front(),
              HasSubstr("before the first record"));
  progress.world_size = 0;
  EXPECT_THAT(
      ProgressWords("candidate", progress),
      ElementsAre("candidate: waiting for the first rank", "1 min 02 s"));
  const auto fields = ProgressFields(progress);
  EXPECT_TRUE(fields["leg"].is_null());
  EXPECT_TRUE(fields["steps_total"].is_null());
  EXPECT_TRUE(fields["seconds_left"].is_null());
}

TEST(ProgressWords, OfATerminalsWidthTheLastGoFirst) {
  const auto words = ProgressWords("reference", SomeCapture());
  EXPECT_EQ(FittedLine(words, 60),
            "reference: iteration 1, leg noise.2, 12 of 20 steps");
  EXPECT_EQ(FittedLine(words, 20).size(), 20U);
  EXPECT_EQ(FittedLine(words, 1).size(), 1U);
}

TEST(ProgressWords, ALegOfAnotherTraceIsPrintable) {
  CaptureProgress progress = SomeCapture();
  progress.leg = "\x1b[2J\xff";
  EXPECT_EQ(ProgressWords("reference", progress)[1], R"(leg \x1b[2J\xff)");
  EXPECT_EQ(ProgressFields(progress)["leg"], R"(\x1b[2J\xff)");
}

TEST(DurationWords, HaveTwoUnits) {
  EXPECT_EQ(DurationWords(59.4), "59 s");
  EXPECT_EQ(DurationWords(59.6), "1 min 00 s");
  EXPECT_EQ(DurationWords(4321), "1 h 12 min");
}

TEST(CheckProgress, TimeIsKnownOnceSomeOfTheWorkIsDone) {
  MeasureProgress measured;
  EXPECT_THAT(ProgressWords("comparing", Read(measured, 9, 0)).front(),
              HasSubstr("reading what the traces hold"));
  measured.tensors_total = 100;
  measured.tensors = 10;
  measured.work_total = 1000;
  measured.work = 200;
  measured.bytes_read = 600;
  EXPECT_FALSE(Read(measured, 9, 1).seconds_left);
  const CheckProgress progress = Read(measured, 9, 4);
  EXPECT_DOUBLE_EQ(progress.seconds_left.value_or(-1), 16);
  EXPECT_DOUBLE_EQ(progress.bytes_per_second, 150);
  EXPECT_EQ(FittedLine(ProgressWords("comparing", progress), 200),
            "comparing: 10 of 100 tensors, 20 %, about 16 s left, 9 s, 600 B, "
            "150 B/s");
  measured.work = 20;
  EXPECT_FALSE(Read(measured, 9, 4).seconds_left);
  measured.work = 1000;
  EXPECT_THAT(ProgressWords("comparing", Read(measured, 9, 4)).front(),
              HasSubstr("judging and explaining"));
}

}  // namespace
}  // namespace ttrace::progress_test
