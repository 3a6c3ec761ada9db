#include "src/cli/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace::plan_test {
namespace {

using ::testing::HasSubstr;

TEST(StepsWords, CountsTheRunItselfAndItsLegs) {
  EXPECT_EQ(StepsWords({.begin = 3, .end = 4}, {"replay", "noise.1"}),
            "1 iteration x (1 + 2 legs) = 3 steps");
  EXPECT_EQ(StepsWords({.begin = 0, .end = 1}, {}),
            "1 iteration x (1 + 0 legs) = 1 step");
}

TEST(StepsWords, SaysWhatLowPrecisionAdds) {
  EXPECT_EQ(StepsWords({.begin = 0, .end = 2},
                       {"replay", "fp32", "fp32.noise.1", "isolated"}),
            "2 iterations x (1 + 2 legs) = 6 steps; 10 if it trains in bf16 or "
            "fp16, 4 of them in fp32");
}

CaptureCost SomeCost() {
  return {.ranks = 1,
          .legs = 6,
          .fp32_legs = 0,
          .real_bytes = 2e6,
          .trace_bytes = 30e6,
          .memory = 4e6,
          .free_memory = 5e9};
}

TEST(CostWords, SaysBytesAndMemoryBesideWhatIsFree) {
  EXPECT_EQ(
      CostWords(SomeCost(), "/absent/folder"),
      "2.0 MB an iteration on 1 rank, with 6 reruns of each up to 30 MB in "
      "all; a rerun takes up to 4.0 MB more memory on a rank (5.0 GB "
      "free)");
  // Every file system of /proc is empty and full.
  EXPECT_THAT(CostWords(SomeCost(), "/proc"), HasSubstr("in all (0 B free)"));
}

TEST(TooLargeWords, SpeakWhereTheRestOfTheTraceHasNoRoom) {
  EXPECT_THAT(TooLargeWords(SomeCost(), "/proc"),
              HasSubstr("30 MB are needed and 0 B are free; choose"));
  CaptureCost written = SomeCost();
  written.trace_bytes = written.real_bytes;
  EXPECT_EQ(TooLargeWords(written, "/proc"), "");
  EXPECT_EQ(TooLargeWords(SomeCost(), "/absent/folder"), "");
}

}  // namespace
}  // namespace ttrace::plan_test
