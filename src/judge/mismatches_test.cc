#include "src/judge/mismatches.h"

#include <gtest/gtest.h>

#include <random>

namespace ttrace::mismatches_test {
namespace {

ErrorStats Flipped(int64_t flips) {
  ErrorStats stats;
  stats.count = 4096;
  stats.mismatched = flips;
  stats.sum_sq_ref = 1;
  stats.sum_sq_err = static_cast<double>(flips);
  return stats;
}

LegFacts Leg(int64_t candidate, const std::vector<int64_t>& noise) {
  LegFacts leg;
  leg.usable = true;
  leg.candidate.total = Flipped(candidate);
  leg.candidate.instances = {{{0}, -1, Flipped(0), 0},
                             {{1}, -1, Flipped(candidate), 1}};
  for (const int64_t flips : noise) leg.noise.push_back({Flipped(flips), {}});
  return leg;
}

TEST(JudgeEquality, OneFlipIsNoFaultWhereNoiseFlipsSeveral) {
  EXPECT_LE(JudgeEquality("real", Leg(1, {3, 5, 2}), true, 1e-6).headroom, 1);
  EXPECT_GT(JudgeEquality("real", Leg(400, {3, 5, 2}), true, 1e-6).headroom, 1);
}

TEST(JudgeEquality, WhatNoNoiseLegFlipsMustBeEqual) {
  const LegJudgement leg = JudgeEquality("real", Leg(1, {0, 0, 0}), true, 1e-6);
  EXPECT_TRUE(std::isinf(leg.headroom));
  EXPECT_EQ(leg.ranks, std::vector<int>{1});
}

TEST(JudgeEquality, DataMustBeEqualWhateverNoiseDoes) {
  EXPECT_TRUE(std::isinf(
      JudgeEquality("real", Leg(1, {3, 5, 2}), false, 1e-6).headroom));
}

// By definition: flips of one rate in three legs and in one more.
TEST(AllowedFlips, HoldsForDrawnFlips) {
  std::mt19937 rng(5);
  for (const double rate : {0.3, 2.0, 50.0}) {
    std::poisson_distribution<int64_t> draw(rate);
    int exceeded = 0;
    for (int trial = 0; trial < 20000; ++trial) {
      const int64_t noise = draw(rng) + draw(rng) + draw(rng);
      if (noise == 0) continue;
      exceeded += draw(rng) > AllowedFlips(noise, 3, 1e-4) ? 1 : 0;
    }
    EXPECT_LE(exceeded, 10) << rate;
  }
  EXPECT_EQ(AllowedFlips(0, 3, 1e-4), 0);
  EXPECT_LT(AllowedFlips(300, 3, 1e-6), 200);
}

// Next to 1 doubles are 1e-16 apart.
TEST(AllowedFlips, ARiskThatSumsOfDoublesDoNotResolveEndsToo) {
  for (const int64_t flips : {1, 3, 300}) {
    const int64_t allowed = AllowedFlips(flips, 3, 1e-15);
    EXPECT_GE(AllowedFlips(flips, 3, 1e-20), allowed);
    EXPECT_LE(AllowedFlips(flips, 3, 1e-20), 2 * allowed);
  }
}

}  // namespace
}  // namespace ttrace::mismatches_test
