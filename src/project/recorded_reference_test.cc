#include "src/project/recorded_reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ttrace::recorded_reference_test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class RecordedReferenceTest : public testing::Test {
 protected:
  RecordedReferenceTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) /
              ("recorded." + std::to_string(getpid()) + "." + info->name());
    reference_ = {.trace = (folder_ / "reference").string(),
                  .note_file = (folder_ / "reference.json").string()};
  }
  ~RecordedReferenceTest() override { fs::remove_all(folder_); }

  void Write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // A trace with a leg of its own launch.
  std::string Record(const std::string& run_id) {
    const fs::path trace = folder_ / "reference.new";
    const std::string manifest =
        R"({"format":"ttrace","run_id":")" + run_id + R"(","created":"today"})";
    Write(trace / "manifest.json", manifest);
    Write(trace / "rank-00000.r0/index.jsonl", "lines");
    Write(trace / "legs/noise.1/manifest.json", manifest);
    Write(trace / "legs/noise.1.log", "said");
    Write(folder_ / "reference.new.log", run_id);
    return trace.string();
  }

  fs::path folder_;
  RecordedReference reference_;
  const nlohmann::ordered_json key_ = {{"command", "python train.py"}};
};

TEST_F(RecordedReferenceTest, IsUsedOnceItIsNoted) {
  EXPECT_EQ(reference_.WhyNot(key_), "not recorded");
  const Status replaced = reference_.Replace(Record("one"), key_);
  ASSERT_TRUE(replaced.ok()) << replaced.error().message();
  EXPECT_EQ(reference_.WhyNot(key_), "");
  EXPECT_EQ(reference_.run_id(), "one");
  EXPECT_EQ(reference_.RecordedAt(), "today");
  EXPECT_EQ(reference_.WhyNot({{"command", "other"}}),
            "its command has changed");
}

TEST_F(RecordedReferenceTest, TheOldOneStaysUntilTheNewOneIsWhole) {
  ASSERT_TRUE(reference_.Replace(Record("one"), key_).ok());
  Record("two");  // which is not put in its place
  EXPECT_EQ(reference_.WhyNot(key_), "");
  EXPECT_EQ(reference_.run_id(), "one");
  ASSERT_TRUE(reference_.Replace(Record("two"), key_).ok());
  EXPECT_EQ(reference_.run_id(), "two");
  EXPECT_EQ(reference_.WhyNot(key_), "");
  std::string log;
  std::ifstream(reference_.trace + ".log") >> log;
  EXPECT_EQ(log, "two");
  for (const char* left : {"reference.new", "reference.old"}) {
    EXPECT_FALSE(fs::exists(folder_ / left)) << left;
  }
}

TEST_F(RecordedReferenceTest, WhatAnInterruptedReplacementLeftIsNoObstacle) {
  fs::create_directories(reference_.trace);
  fs::rename(Record("lost"), reference_.trace + ".old");
  ASSERT_TRUE(reference_.Replace(Record("one"), key_).ok());
  EXPECT_EQ(reference_.WhyNot(key_), "");
}

TEST_F(RecordedReferenceTest, OneOfWhichFilesAreGoneIsNone) {
  for (const char* gone :
       {"legs/noise.1", "legs", "rank-00000.r0/index.jsonl"}) {
    ASSERT_TRUE(reference_.Replace(Record("one"), key_).ok());
    fs::remove_all(fs::path(reference_.trace) / gone);
    EXPECT_EQ(reference_.WhyNot(key_),
              "files of its trace were removed or changed")
        << gone;
  }
  ASSERT_TRUE(reference_.Replace(Record("one"), key_).ok());
  fs::remove(fs::path(reference_.trace) / "legs/noise.1.log");
  EXPECT_EQ(reference_.WhyNot(key_), "") << "what it printed is not read";
  Write(fs::path(reference_.trace) / "manifest.json", R"({"run_id":"other"})");
  EXPECT_EQ(reference_.WhyNot(key_), "its trace is not there any more");
}

TEST_F(RecordedReferenceTest, ForeignFilesAreNotRemoved) {
  ASSERT_TRUE(reference_.Replace(Record("one"), key_).ok());
  const fs::path mine = folder_ / "reference.old" / "thesis.txt";
  Write(mine, "x");
  const Status replaced = reference_.Replace(Record("two"), key_);
  ASSERT_FALSE(replaced.ok());
  EXPECT_THAT(replaced.error().message(), HasSubstr("reference.old"));
  EXPECT_TRUE(fs::exists(mine));
  EXPECT_EQ(reference_.WhyNot(key_), "") << "the old one is still there";
}

}  // namespace
}  // namespace ttrace::recorded_reference_test
