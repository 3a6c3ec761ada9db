#include "src/report/timeline/lanes.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace ttrace::lanes_test {
namespace {

TimelineSlice Slice(int64_t begin, int64_t end, std::string name = "") {
  TimelineSlice out;
  out.begin_us = begin;
  out.end_us = end;
  out.name = std::move(name);
  return out;
}

// Whether one of them cuts the other.
bool Overlap(const TimelineSlice& a, const TimelineSlice& b) {
  return a.begin_us < b.begin_us && b.begin_us < a.end_us &&
         a.end_us < b.end_us;
}

TEST(Lanes, WhatIsInsideSharesOne) {
  std::vector<TimelineSlice> slices = {Slice(3, 4, "leaf"), Slice(0, 9, "root"),
                                       Slice(2, 5, "block"),
                                       Slice(5, 9, "next"), Slice(9, 9, "end")};
  PutInLanes(&slices);
  const std::vector<std::string> order = {"root", "block", "leaf", "next",
                                          "end"};
  for (size_t i = 0; i < slices.size(); ++i) {
    EXPECT_EQ(slices[i].name, order[i]);
    EXPECT_EQ(slices[i].lane, 0) << slices[i].name;
  }
}

TEST(Lanes, OfEqualOnesTheFirstIsAround) {
  std::vector<TimelineSlice> slices = {Slice(1, 2, "a"), Slice(1, 2, "a.b")};
  PutInLanes(&slices);
  EXPECT_EQ(slices[0].name, "a");
  EXPECT_EQ(slices[1].lane, 0);
}

TEST(Lanes, WhatCutsAnotherIsInTheNext) {
  std::vector<TimelineSlice> slices = {Slice(0, 5), Slice(3, 8), Slice(5, 6)};
  PutInLanes(&slices);
  EXPECT_EQ(slices[0].lane, 0);
  EXPECT_EQ(slices[1].lane, 0);
  EXPECT_EQ(slices[1].begin_us, 5);
  EXPECT_EQ(slices[2].lane, 1);
  EXPECT_EQ(slices[2].end_us, 8);
}

TEST(Lanes, NoTwoOfOneOverlapHoweverTheyCome) {
  std::mt19937 random(7);
  std::vector<TimelineSlice> slices;
  for (int i = 0; i < 150; ++i) {
    const auto begin = static_cast<int64_t>(random() % 60);
    slices.push_back(Slice(begin, begin + static_cast<int64_t>(random() % 60)));
  }
  PutInLanes(&slices);
  for (size_t a = 0; a < slices.size(); ++a) {
    EXPECT_LE(slices[a].begin_us, slices[a].end_us);
    for (size_t b = a + 1; b < slices.size(); ++b) {
      if (slices[a].lane != slices[b].lane) break;
      EXPECT_LE(slices[a].begin_us, slices[b].begin_us);
      EXPECT_FALSE(Overlap(slices[a], slices[b])) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace ttrace::lanes_test
