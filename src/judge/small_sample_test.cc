#include "src/judge/small_sample.h"

#include <gtest/gtest.h>

#include <random>

#include "src/judge/constants.h"

namespace ttrace::small_sample_test {
namespace {

constexpr double kRisk = 1e-6;

// Published tables: F(0.95; 4, 10) = 3.478, F(0.99; 1, 3) = 34.12.
TEST(FUpperQuantile, AgreesWithPublishedTables) {
  EXPECT_NEAR(FUpperQuantile(0.05, 4, 10), 3.478, 1e-3);
  EXPECT_NEAR(FUpperQuantile(0.01, 1, 3), 34.12, 1e-2);
  EXPECT_NEAR(FUpperQuantile(0.5, 7, 7), 1.0, 1e-9);
}

TEST(FUpperQuantile, InvertsTheDistribution) {
  for (const double d1 : {1.0, 3.0, 64.0, 200.0}) {
    for (const double risk : {0.3, 1e-2, 1e-4}) {
      const double x = FUpperQuantile(risk, d1, 3 * d1);
      EXPECT_NEAR(1 - FDistribution(x, d1, 3 * d1), risk, 1e-9) << d1;
    }
  }
}

// F(x; 2, 2) = x / (1 + x).
TEST(FDistribution, KeepsItsDigitsInTheLowerTail) {
  for (const double x : {1e-30, 1e-6, 0.5, 2.0, 1e6}) {
    EXPECT_NEAR(FDistribution(x, 2, 2) / (x / (1 + x)), 1, 1e-12) << x;
  }
  EXPECT_EQ(FDistribution(0, 2, 2), 0);
}

TEST(NoiseFactor, IsTheOneConstantForLargeTensors) {
  EXPECT_EQ(NoiseFactor(2048, 1, kRisk), kNoiseFactor);
  EXPECT_EQ(NoiseFactor(1 << 20, 3, kRisk), kNoiseFactor);
}

TEST(NoiseFactor, GrowsAsElementsAndLegsGetFewer) {
  EXPECT_GT(NoiseFactor(1, 3, kRisk), 50);
  EXPECT_GT(NoiseFactor(1, 3, kRisk), NoiseFactor(2, 3, kRisk));
  EXPECT_GT(NoiseFactor(4, 3, kRisk), NoiseFactor(16, 3, kRisk));
  EXPECT_GT(NoiseFactor(4, 1, kRisk), NoiseFactor(4, 3, kRisk));
  EXPECT_GE(NoiseFactor(255, 3, kRisk), kNoiseFactor);
}

// Published table of Student's t: 12.706 for one degree, 3.182 for three.
TEST(SampleFactor, IsStudentsQuantile) {
  EXPECT_NEAR(SampleFactor(1, 0.05), 12.706, 1e-3);
  EXPECT_NEAR(SampleFactor(3, 0.05), 3.182, 1e-3);
}

// By definition: errors of n elements against the rms of s legs.
TEST(NoiseFactor, HoldsForDrawnErrors) {
  std::mt19937 rng(7);
  std::normal_distribution<double> normal;
  auto sum_of_squares = [&](int n) {
    double sum = 0;
    for (int i = 0; i < n; ++i) {
      const double x = normal(rng);
      sum += x * x;
    }
    return sum;
  };
  for (const int n : {1, 4, 16}) {
    const double factor = NoiseFactor(n, 3, kRisk);
    int exceeded = 0;
    for (int trial = 0; trial < 20000; ++trial) {
      const double error = sum_of_squares(n);
      const double noise = sum_of_squares(3 * n) / 3;
      if (error > factor * factor * noise) ++exceeded;
    }
    EXPECT_LE(exceeded, 1) << n;
  }
}

}  // namespace
}  // namespace ttrace::small_sample_test
