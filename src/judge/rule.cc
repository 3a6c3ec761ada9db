#include "src/judge/rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/judge/constants.h"
#include "src/judge/small_sample.h"

namespace ttrace {
namespace {

double RootMeanSquare(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// The variance of a low-precision sum over n ranks, in units of one rounding of
// its result: uncorrelated terms are rounded (1 in all), and each of the n - 1
// partial sums, of which the one of i terms has i / n of the result's variance.
double RoundingsOverRanks(int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  return 1 + (n - 1) * (n + 2) / (2 * n);
}

// What SummationGrowth is made of, for the provenance.
std::string GrowthWords(const LegErrors& errors) {
  if (!(SummationGrowth(errors) > 1)) return "";
  return errors.unit_roundoff > kFp32Roundoff
             ? fmt::format(
                   ", sums over {} ranks",
                   std::max(errors.reference_ranks, errors.candidate_ranks))
             : fmt::format(", sums of {} terms", errors.longest_sum);
}

}  // namespace

// Low-precision kernels sum in fp32, so a result is rounded once, which is what
// a noise leg does, and the difference of two runs holds two such roundings.
// But what ranks sum they sum in the values' own precision, one after the other
// in a ring. In an fp32 leg the sum itself rounds at each of its K terms, too:
// the rounding errors of a random walk of partial sums add up to sqrt(K / 2)
// times that of one rounding. Any other order is better, and both runs may use
// any. Source: N. Higham, T. Mary, A new approach to probabilistic rounding
// error analysis, 2019 (errors of sums grow with sqrt(K)).
double SummationGrowth(const LegErrors& errors) {
  if (errors.unit_roundoff > kFp32Roundoff) {
    return std::sqrt((RoundingsOverRanks(errors.reference_ranks) +
                      RoundingsOverRanks(errors.candidate_ranks)) /
                     2);
  }
  return std::max(1.0, std::sqrt(static_cast<double>(errors.longest_sum) / 2));
}

LegJudgement JudgeLeg(const LegErrors& errors) {
  LegJudgement out;
  out.leg = errors.leg;
  out.stats = errors.stats;
  out.err = errors.stats.rel_err();
  if (errors.candidate_hp) out.err_hp = *errors.candidate_hp;
  if (errors.reference_hp) out.ref_err_hp = *errors.reference_hp;

  if (errors.noise.empty()) {
    // Bit equality needs no tolerance; anything else cannot be judged.
    out.checkable = errors.stats.bitwise_equal();
    out.provenance = "no noise leg in the reference";
    return out;
  }

  const int legs = static_cast<int>(errors.noise.size());
  const double measured = RootMeanSquare(errors.noise);
  out.noise = std::max(measured, errors.repeat_err);
  const double growth = SummationGrowth(errors);
  const double floor = growth * kFloorRoundoffs * errors.unit_roundoff;
  const double noise = growth * out.noise;
  const bool has_hp = errors.candidate_hp && errors.reference_hp;
  double factor = NoiseFactor(errors.stats.count, legs);
  const bool vector_rule =
      errors.vector_gradient && !has_hp && errors.unit_roundoff > 0x1p-20;
  if (vector_rule) factor = std::max(factor, kVectorGradientFactor);

  double scale_b = std::max(noise, floor);
  const char* origin = noise < floor                   ? "floor u/4"
                       : errors.repeat_err <= measured ? "noise"
                                                       : "replay differs by";
  if (vector_rule && errors.reference_hp) {
    // Both sides round one exact sum over tokens, each by about what the
    // reference is off (which also holds what came from other modules): their
    // difference is sqrt(2) of that.
    const double rounding = std::sqrt(2) * *errors.reference_hp;
    if (kNoiseFactor * rounding > factor * scale_b) {
      scale_b = rounding;
      factor = kNoiseFactor;
      origin = "reference against its fp32 leg, sqrt(2)";
    }
  }
  double score = out.err / scale_b;
  out.bound = factor * scale_b;
  if (has_hp) {
    const double scale_d = std::max({*errors.reference_hp, noise, floor});
    const double score_d = *errors.candidate_hp / scale_d;
    if (score_d < score) {
      score = score_d;
      out.bound = factor * scale_d;
      origin = *errors.reference_hp >= std::max(noise, floor)
                   ? "reference against its fp32 leg"
                   : origin;
    }
  }
  out.headroom = score / factor;
  out.checkable = out.bound <= kWidestBound;
  out.provenance =
      fmt::format("{} {:.1e} x {:.3g} ({} noise leg{}{}{}{}{})", origin,
                  out.bound / factor, factor, legs, legs == 1 ? "" : "s",
                  errors.noise_words.empty() ? "" : " " + errors.noise_words,
                  has_hp ? " + fp32 leg" : "",
                  vector_rule ? ", 1-D gradient" : "", GrowthWords(errors));
  return out;
}

}  // namespace ttrace
