// Whether a tensor is the reference's times one number, as far as sums tell.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_JUDGE_ONE_FACTOR_H_
#define TTRACE_SRC_JUDGE_ONE_FACTOR_H_

#include <algorithm>
#include <cmath>

#include "src/compare/error_stats.h"
#include "src/judge/judgement.h"

namespace ttrace {

// Whether alpha, which stats.projection() is, leaves no more of the candidate
// than rounding does: what is within the bound, relative to the larger of the
// two, or 1 % of the error, as the statistics are summed in fp32 lanes, whose
// relative error of 1e-7 leaves a residual of 3e-4 of the error. What is small
// beside the reference leaves little, whatever it is: there a factor has to
// explain more of it than remains, as far as the sums can tell.
// REQUIRES: stats.sum_sq_ref > 0
inline bool FactorExplains(const ErrorStats& stats, double bound) {
  const double alpha = std::fabs(stats.projection());
  const double of_error = 0.01 * stats.rel_err() / std::max(1.0, alpha);
  const double of_candidate = std::max(0.5 * alpha, 1e-3 * stats.rel_err());
  return stats.beyond_factor() / std::max(1.0, alpha) <=
         std::max(bound, std::min(of_error, of_candidate));
}

// Whether alpha is another number than 1 and 0, and explains the candidate.
// REQUIRES: stats.sum_sq_ref > 0
inline bool IsOneFactor(const ErrorStats& stats, double bound) {
  const double alpha = stats.projection();
  return std::fabs(alpha - 1) > bound && std::fabs(alpha) > bound &&
         FactorExplains(stats, bound);
}

// Out of bounds by a factor, and by nothing else. Never of zeros on one side.
inline bool IsOutByOneFactor(const LegJudgement& leg) {
  return leg.stats.sum_sq_ref > 0 && leg.stats.nonfinite_differ == 0 &&
         IsOneFactor(leg.stats, leg.bound);
}

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_ONE_FACTOR_H_
