#include "src/judge/projection.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/hypot.h"
#include "src/judge/constants.h"
#include "src/judge/small_sample.h"

namespace ttrace {

double CommonFactorError(const ErrorStats& stats) {
  return stats.sum_sq_ref > 0 ? std::fabs(stats.sum_err_ref / stats.sum_sq_ref)
                              : 0;
}

double MeanSquareProjection(const std::vector<ErrorStats>& noise) {
  double sum = 0;
  for (const ErrorStats& leg : noise) {
    const double factor = CommonFactorError(leg);
    sum += factor * factor;
  }
  return noise.empty() ? 0 : sum / static_cast<double>(noise.size());
}

void JudgeProjection(const LegErrors& errors, double pooled,
                     LegJudgement* leg) {
  const Test* norm = leg->Find(Statistic::kNorm);
  if (norm == nullptr || !(errors.stats.sum_sq_ref > 0)) return;
  const auto legs = static_cast<int>(errors.noise.size());
  const double coarser = errors.noise_growth();
  const double own = MeanSquareProjection(errors.noise);
  Test test;
  test.statistic = Statistic::kProjection;
  test.value = CommonFactorError(errors.stats);
  test.noise = std::sqrt(own);
  Expectation& expected = test.expected;
  expected.noise_legs = legs;
  expected.growth = norm->expected.growth;

  const double by_legs = SampleFactor(legs, errors.risk);
  const double by_many = std::sqrt(-2 * std::log(errors.risk / 2));
  const double independent = IndependentErrors(errors.noise);
  // What the norm's bound admits in elements that do not know of each other.
  const double random =
      std::max({norm->noise * expected.growth * coarser,
                errors.least_rounding(), errors.unseen_rounding(),
                std::isnan(norm->reference_fp32)
                    ? 0
                    : errors.longer_sums() * norm->reference_fp32}) /
      std::sqrt(independent);
  const double repeat = errors.repeat ? CommonFactorError(*errors.repeat) : 0;
  const double fp32 =
      errors.reference_fp32 ? CommonFactorError(*errors.reference_fp32) : 0;
  const std::pair<double, Origin> candidates[] = {
      {by_legs * coarser * std::sqrt(std::max(own, pooled)), Origin::kNoise},
      {by_many * random, Origin::kRandomFactor},
      {kScalarRoundoffs * errors.rounding.unit_roundoff, Origin::kFloor},
      {kNoiseFactor * repeat, Origin::kRepeat},
      // One sample of what the reference rounds, and two sides that do so.
      {kNoiseFactor * Hypot(1, errors.longer_sums()) * fp32,
       Origin::kReferenceFp32},
      {errors.long_sum_loss(), Origin::kLongSum},
  };
  for (const auto& [bound, origin] : candidates) {
    if (bound <= test.bound) continue;
    test.bound = bound;
    expected.origin = origin;
  }
  expected.factor = expected.origin == Origin::kNoise          ? by_legs
                    : expected.origin == Origin::kRandomFactor ? by_many
                                                               : 1;
  expected.scale = test.bound / expected.factor;
  test.headroom = test.value / test.bound;
  leg->Add(std::move(test));
}

}  // namespace ttrace
