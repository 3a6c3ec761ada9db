#include "src/judge/rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/hypot.h"
#include "src/judge/constants.h"
#include "src/judge/small_sample.h"

namespace ttrace {
namespace {

double RootMeanSquare(const std::vector<ErrorStats>& noise) {
  double sum = 0;
  for (const ErrorStats& leg : noise) sum += leg.rel_err() * leg.rel_err();
  return std::sqrt(sum / static_cast<double>(noise.size()));
}

// The norm's test. REQUIRES: errors.noise is not empty.
Test JudgeNorm(const LegErrors& errors) {
  Test test;
  test.value = errors.stats.rel_err();
  if (errors.candidate_fp32) test.value_fp32 = errors.candidate_fp32->rel_err();
  if (errors.reference_fp32)
    test.reference_fp32 = errors.reference_fp32->rel_err();

  const int legs = static_cast<int>(errors.noise.size());
  const double measured = RootMeanSquare(errors.noise);
  const double repeat = errors.repeat ? errors.repeat->rel_err() : 0;
  test.noise = std::max(measured, repeat);
  const double unit = errors.rounding.unit_roundoff;
  const double growth = SummationGrowth(errors.rounding);
  const double floor = errors.least_rounding();
  const double unseen = errors.unseen_rounding();
  const double seen = errors.noise_growth() * test.noise;
  const double noise = std::max(growth * seen, Hypot(seen, unseen));
  const bool has_hp = errors.candidate_fp32 && errors.reference_fp32;
  double factor =
      NoiseFactor(IndependentErrors(errors.noise), legs, errors.risk);
  const double longer_sums = errors.longer_sums();
  const bool token_sum =
      errors.sums_tokens() && !has_hp && unit > kFp32Roundoff;
  if (token_sum && (errors.vector_gradient || !errors.reference_fp32)) {
    factor = std::max(factor, kTokenSumFactor * longer_sums);
  }

  double scale_b = std::max(noise, floor);
  Origin origin = noise < floor || seen < unseen ? Origin::kFloor
                  : repeat <= measured           ? Origin::kNoise
                                                 : Origin::kRepeat;
  if (token_sum && errors.reference_fp32) {
    // Both sides round one exact sum over tokens, each by about what the
    // reference is off (which also holds what came from other modules), or that
    // times `longer_sums`: their difference is the root of both squares.
    const double rounding = Hypot(1, longer_sums) * test.reference_fp32;
    if (kNoiseFactor * rounding > factor * scale_b) {
      scale_b = rounding;
      factor = kNoiseFactor;
      origin = Origin::kReferenceRounds;
    }
  }
  double score = test.value / scale_b;
  test.bound = factor * scale_b;
  if (has_hp) {
    const double reference_fp32 = longer_sums * test.reference_fp32;
    const double scale_d = std::max({reference_fp32, noise, floor});
    const double score_d = test.value_fp32 / scale_d;
    if (score_d < score) {
      score = score_d;
      test.bound = factor * scale_d;
      if (reference_fp32 >= std::max(noise, floor)) {
        origin = Origin::kReferenceFp32;
      }
    }
  }
  test.headroom = score / factor;
  Expectation& expected = test.expected;
  if (errors.long_sum_loss() > test.bound) {
    test.bound = errors.long_sum_loss();
    test.headroom = test.value / test.bound;
    factor = 1;
    origin = Origin::kLongSum;
  }
  expected.origin = origin;
  expected.scale = test.bound / factor;
  expected.factor = factor;
  expected.noise_legs = legs;
  expected.fp32_leg = has_hp;
  expected.vector_gradient = token_sum && errors.vector_gradient;
  expected.lookup_gradient = token_sum && errors.lookup_gradient;
  expected.growth = growth;
  expected.cancelled = errors.cancelled();
  if (unit > kFp32Roundoff) {
    expected.summed_ranks = std::max(errors.rounding.reference_ranks,
                                     errors.rounding.candidate_ranks);
  } else {
    expected.summed_terms = errors.rounding.longest_sum;
  }
  return test;
}

}  // namespace

double IndependentErrors(const std::vector<ErrorStats>& noise) {
  double whole = 0;     // of squared errors
  double coherent = 0;  // of squared projections on the reference
  double largest = 0;   // squared error of an element
  for (const ErrorStats& leg : noise) {
    whole += leg.sum_sq_err;
    if (leg.sum_sq_ref > 0) {
      coherent += leg.sum_err_ref * leg.sum_err_ref / leg.sum_sq_ref;
    }
    largest = std::max(largest, leg.max_abs_err * leg.max_abs_err);
  }
  const auto n = static_cast<double>(std::max<int64_t>(1, noise.front().count));
  if (!(whole > 0) || !std::isfinite(whole)) return n;
  const double share = std::min(1.0, coherent / whole);
  const double by_factor = 1 / (share * share + (1 - share) * (1 - share) / n);
  if (!(largest > 0)) return std::min(n, by_factor);
  const double mean = whole / static_cast<double>(noise.size());
  const double by_few = mean / largest * std::max(1.0, 2 * std::log(n));
  return std::max(1.0, std::min({n, by_factor, by_few}));
}

LegJudgement JudgeLeg(const LegErrors& errors) {
  LegJudgement out;
  out.leg = errors.leg;
  out.stats = errors.stats;
  out.err = errors.stats.rel_err();
  if (errors.noise.empty()) {
    // Bit equality needs no tolerance; anything else cannot be judged.
    out.checkable = errors.stats.bitwise_equal();
    return out;
  }
  Test norm = JudgeNorm(errors);
  out.noise = norm.noise;
  out.bound = norm.bound;
  // Of terms that cancel nothing is left but their rounding if zero is within
  // the bound. Then the bound means something if it is narrow beside them.
  out.zero_sum =
      norm.bound >= 1 && norm.bound <= kWidestBound * errors.cancelled();
  norm.expected.zero_sum = out.zero_sum;
  out.checkable = norm.bound <= kWidestBound || out.zero_sum;
  out.Add(std::move(norm));
  return out;
}

namespace {

// All errors at one end: those of the candidate as small as they can be and
// those of the reference as large, or the other way round.
LegErrors AtEnd(LegErrors errors, bool candidate_low) {
  const auto end = [](ErrorStats* stats, bool low) {
    *stats = low ? stats->AtLow() : stats->AtHigh();
  };
  end(&errors.stats, candidate_low);
  if (errors.candidate_fp32) end(&*errors.candidate_fp32, candidate_low);
  for (ErrorStats& leg : errors.noise) end(&leg, !candidate_low);
  if (errors.repeat) end(&*errors.repeat, !candidate_low);
  if (errors.reference_fp32) end(&*errors.reference_fp32, !candidate_low);
  return errors;
}

}  // namespace

double LegErrors::least_rounding() const {
  const double sums = std::max(kFloorRoundoffs * rounding.unit_roundoff,
                               OtherOrderRounding(rounding));
  return cancelled() * std::max({SummationGrowth(rounding) * sums,
                                 kFloorRoundoffs * rounding.maker_roundoff,
                                 OtherSummandsRounding(rounding)});
}

bool LegErrors::estimated() const {
  const auto is = [](const std::optional<ErrorStats>& measured) {
    return measured && measured->estimated();
  };
  return stats.estimated() || is(repeat) || is(candidate_fp32) ||
         is(reference_fp32) ||
         std::any_of(noise.begin(), noise.end(),
                     [](const ErrorStats& one) { return one.estimated(); });
}

LegJudgement JudgeEstimates(const LegErrors& errors) {
  LegJudgement least = JudgeLeg(AtEnd(errors, true));
  if (least.checkable && least.headroom > 1) return least;
  LegJudgement largest = JudgeLeg(AtEnd(errors, false));
  if (largest.checkable && largest.headroom <= 1) return largest;
  LegJudgement out = JudgeLeg(errors);
  if (!out.checkable) return out;
  out.checkable = false;
  out.uncertain = true;
  return out;
}

std::optional<Test> JudgePart(const LegErrors& part) {
  if (part.noise.empty() || !(part.stats.sum_sq_ref > 0)) return std::nullopt;
  Test test = JudgeNorm(part);
  test.statistic = Statistic::kPiece;
  if (!(test.bound <= kWidestBound)) return std::nullopt;
  return test;
}

}  // namespace ttrace
