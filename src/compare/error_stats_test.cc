#include "src/compare/error_stats.h"

#include <gtest/gtest.h>

namespace ttrace::error_stats_test {
namespace {

// Of a candidate alpha * ref + rest, where rest is orthogonal to ref and has
// the norm `rest`, and ref has norm 1.
ErrorStats Scaled(double alpha, double rest) {
  ErrorStats stats;
  stats.count = stats.mismatched = 100;
  stats.sum_sq_ref = 1;
  stats.sum_err_ref = alpha - 1;
  stats.sum_sq_err = (alpha - 1) * (alpha - 1) + rest * rest;
  return stats;
}

TEST(ErrorStats, WhatAFactorLeavesIsSeenHoweverSmall) {
  for (const double rest : {1e-3, 3e-8, 1e-8, 1e-12}) {
    EXPECT_NEAR(Scaled(1, rest).residual() / rest, 1, 1e-6);
    EXPECT_NEAR(Scaled(1 + rest, rest).residual() / rest, 1, 1e-3);
    EXPECT_NEAR(Scaled(1, rest).beyond_factor() / rest, 1, 1e-6);
  }
  EXPECT_NEAR(Scaled(2, 1e-3).residual(), 5e-4, 1e-9);
  EXPECT_EQ(Scaled(2, 0).residual(), 0);
}

}  // namespace
}  // namespace ttrace::error_stats_test
