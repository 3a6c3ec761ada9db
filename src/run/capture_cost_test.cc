#include "src/run/capture_cost.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ttrace::capture_cost_test {
namespace {

namespace fs = std::filesystem;

class CaptureCostTest : public testing::Test {
 protected:
  CaptureCostTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) /
              ("cost." + std::to_string(getpid()) + "." + info->name());
    fs::create_directories(folder_);
  }
  ~CaptureCostTest() override { fs::remove_all(folder_); }

  CaptureCost Read(const std::string& messages) {
    std::ofstream(folder_ / "messages.jsonl") << messages;
    return ReadCaptureCost(folder_, {.begin = 1, .end = 3});
  }

  fs::path folder_;
};

TEST_F(CaptureCostTest, SumsBytesOfRanksAndTakesTheWorstOfTheirMemory) {
  const CaptureCost cost = Read(
      R"({"kind":"loaded","rank":"0"})"
      "\n"
      R"({"kind":"cost","rank":"0","legs":4,"fp32_legs":1,"stored_legs":3,)"
      R"("stored_fp32_legs":1,"leg_bytes":100,)"
      R"("fp32_leg_bytes":200,"state_bytes":10,"memory":70,"free_memory":900})"
      "\n"
      R"({"kind":"cost","rank":"1","legs":2,"fp32_legs":0,"stored_legs":2,"leg_bytes":50,)"
      R"("fp32_leg_bytes":100,"state_bytes":5,"memory":80,"free_memory":800})"
      "\n");
  EXPECT_EQ(cost.ranks, 2);
  EXPECT_EQ(cost.legs, 4);
  EXPECT_EQ(cost.fp32_legs, 1);
  EXPECT_EQ(cost.real_bytes, 110 + 55);
  // Two iterations, and what the last step left.
  EXPECT_EQ(cost.trace_bytes,
            2 * (100 + 10 + 2 * 100 + 200) + 10 + 2 * (50 + 5 + 2 * 50) + 5);
  EXPECT_EQ(cost.memory, 80);
  EXPECT_EQ(cost.free_memory, 800);
}

TEST_F(CaptureCostTest, CountsARestartedRankOnce) {
  const std::string line =
      R"({"kind":"cost","rank":"0","legs":1,"leg_bytes":8})"
      "\n";
  const CaptureCost cost = Read(line + line);
  EXPECT_EQ(cost.ranks, 1);
  EXPECT_EQ(cost.real_bytes, 8);
}

TEST_F(CaptureCostTest, PassesOverWhatItCannotRead) {
  const CaptureCost cost = Read(
      "{\n[]\n{\"kind\":1}\n{\"kind\":\"cost\"}\n{\"kind\":\"cost\",\"rank\":0}"
      "\n"
      R"({"kind":"cost","rank":"0","legs":-4,"leg_bytes":1e300,"memory":"x"})"
      "\n");
  EXPECT_EQ(cost.ranks, 1);
  EXPECT_EQ(cost.legs, 0);
  EXPECT_EQ(cost.trace_bytes, 0);
  EXPECT_EQ(cost.memory, 0);
}

TEST(CaptureCost, IsNothingWhereNothingWasSaid) {
  EXPECT_EQ(ReadCaptureCost("/absent", {}).ranks, 0);
}

}  // namespace
}  // namespace ttrace::capture_cost_test
