#include "src/judge/maxima.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/compare/compare_kernel.h"
#include "src/judge/constants.h"
#include "src/judge/small_sample.h"

namespace ttrace {
namespace {

constexpr auto kBlock = static_cast<double>(kCompareBlock);

double BlockError(const ErrorStats& part, double sum_sq_ref) {
  return part.max_block_sq_err == 0
             ? 0
             : std::sqrt(part.max_block_sq_err / sum_sq_ref);
}

// What noise says about one statistic.
struct Noise {
  double largest = 0;  // of all noise legs
  // How many elements of the largest error would make up the whole error.
  double equivalent = 1;
  double extreme = 0;  // of a normal law with the noise's rms
};

Noise ElementNoise(const MaximaErrors& maxima) {
  Noise out;
  double sum = 0;
  for (const ErrorStats& leg : maxima.noise) {
    out.largest = std::max(out.largest, leg.max_elem);
    sum += leg.sum_sq_elem;
  }
  if (out.largest == 0) return out;
  const auto legs = static_cast<double>(maxima.noise.size());
  const int64_t count = maxima.noise.front().count;
  out.equivalent = sum / legs / (out.largest * out.largest);
  out.extreme =
      LargestElementFactor(count, static_cast<int>(maxima.noise.size())) *
      std::sqrt(sum / legs / static_cast<double>(count));
  return out;
}

Noise BlockNoise(const MaximaErrors& maxima) {
  Noise out;
  double squares = 0;  // of the norm's error
  double equivalent = 0;
  for (const ErrorStats& leg : maxima.noise) {
    const double largest = BlockError(leg, leg.sum_sq_ref);
    squares += leg.rel_err() * leg.rel_err();
    if (largest <= out.largest) continue;
    out.largest = largest;
    // The largest error of any element is at least that of this block's.
    equivalent = leg.max_block_sq_err / (leg.max_abs_err * leg.max_abs_err);
  }
  if (out.largest == 0) return out;
  const auto legs = static_cast<double>(maxima.noise.size());
  const int64_t count = maxima.noise.front().count;
  out.equivalent = equivalent;
  out.extreme =
      LargestBlockFactor(count, static_cast<int>(maxima.noise.size())) *
      std::sqrt(squares / legs * kBlock / static_cast<double>(count));
  return out;
}

double EquivalentFactor(double equivalent, int legs) {
  return NoiseFactor(std::max<int64_t>(1, std::llround(equivalent)), legs);
}

// The two errors of one statistic against the fp32 leg.
struct HighPrecision {
  double candidate = 0;
  double reference = 0;
  double equivalent = 1;  // as Noise::equivalent, of `reference`
};

MaximumJudgement Judge(double err, const Noise& noise, double floor,
                       double growth, int legs,
                       const std::optional<HighPrecision>& hp) {
  MaximumJudgement out;
  out.judged = true;
  out.err = err;
  out.noise = noise.largest;
  out.bound =
      growth *
      std::max({EquivalentFactor(noise.equivalent, legs) * noise.largest,
                noise.extreme, floor});
  out.headroom = err / out.bound;
  if (hp) {
    out.err_hp = hp->candidate;
    out.ref_err_hp = hp->reference;
    // The reference's own rounding is a single sample.
    const double bound_hp = std::max(
        out.bound, EquivalentFactor(hp->equivalent, 1) * hp->reference);
    if (hp->candidate / bound_hp < out.headroom) {
      out.headroom = hp->candidate / bound_hp;
      out.bound = bound_hp;
    }
  }
  return out;
}

std::optional<HighPrecision> ElementHp(const MaximaErrors& maxima) {
  if (!maxima.candidate_hp || !maxima.reference_hp) return std::nullopt;
  const ErrorStats& ref = *maxima.reference_hp;
  HighPrecision out;
  out.candidate = maxima.candidate_hp->max_elem;
  out.reference = ref.max_elem;
  if (ref.max_elem > 0) {
    out.equivalent = ref.sum_sq_elem / (ref.max_elem * ref.max_elem);
  }
  return out;
}

std::optional<HighPrecision> BlockHp(const MaximaErrors& maxima) {
  if (!maxima.candidate_hp || !maxima.reference_hp) return std::nullopt;
  const ErrorStats& cand = *maxima.candidate_hp;
  const ErrorStats& ref = *maxima.reference_hp;
  HighPrecision out;
  out.candidate = BlockError(cand, cand.sum_sq_ref);
  out.reference = BlockError(ref, ref.sum_sq_ref);
  if (ref.max_abs_err > 0) {
    out.equivalent = ref.max_block_sq_err / (ref.max_abs_err * ref.max_abs_err);
  }
  return out;
}

// The largest headroom of the three speaks for the leg.
void TakeIfWorse(const MaximumJudgement& maximum, Statistic statistic,
                 const char* what, size_t legs, LegJudgement* leg) {
  if (!maximum.judged || !(maximum.headroom > leg->headroom)) return;
  leg->headroom = maximum.headroom;
  leg->decides = statistic;
  leg->provenance =
      fmt::format("{}: {:.1e} allowed, {:.1e} in {} noise leg{}{}", what,
                  maximum.bound, maximum.noise, legs, legs == 1 ? "" : "s",
                  std::isnan(maximum.err_hp) ? "" : " + fp32 leg");
}

}  // namespace

double LargestElementFactor(int64_t elements, int legs) {
  // g with P(|t| > g) <= risk / n for Student's t of nu = s n degrees, which
  // is what an error over an independent rms follows. With t = N / sqrt(W) and
  // P(|N| > a) <= exp(-a^2 / 2), it is at most
  //   E exp(-g^2 W / 2) = (1 + g^2 / nu)^(-nu / 2).
  const auto n = static_cast<double>(std::max<int64_t>(1, elements));
  const double nu = n * std::max(1, legs);
  return std::sqrt(nu * std::expm1(2 / nu * std::log(n / kSmallSampleRisk)));
}

double LargestBlockFactor(int64_t elements, int legs) {
  // A block's sum of b squares exceeds b + 2 sqrt(b t) + 2 t, and the mean of
  // the nu = s n squares of noise falls below 1 - 2 sqrt(t / nu), with
  // probability exp(-t) each. Source: B. Laurent, P. Massart, Adaptive
  // estimation of a quadratic functional by model selection, 2000, lemma 1.
  if (elements < kCompareBlock) return std::numeric_limits<double>::infinity();
  const auto n = static_cast<double>(elements);
  const double nu = n * std::max(1, legs);
  const double t = std::log(2 * std::ceil(n / kBlock) / kSmallSampleRisk);
  const double low = 1 - 2 * std::sqrt(t / nu);
  return std::sqrt((1 + 2 * std::sqrt(t / kBlock) + 2 * t / kBlock) / low);
}

void JudgeMaxima(const LegErrors& errors, const MaximaErrors& maxima,
                 LegJudgement* leg) {
  const bool has_hp = maxima.candidate_hp && maxima.reference_hp;
  const bool low_precision = errors.unit_roundoff > kFp32Roundoff;
  if (maxima.noise.empty()) return;
  if (errors.vector_gradient && low_precision && !has_hp) return;

  const int legs = static_cast<int>(maxima.noise.size());
  const double growth = SummationGrowth(errors);
  const ErrorStats& stats = errors.stats;
  leg->element =
      Judge(stats.max_elem, ElementNoise(maxima), 2 * errors.unit_roundoff,
            growth, legs, ElementHp(maxima));
  // A tensor of one block: its norm says the same, and more sharply.
  if (stats.count > kCompareBlock && stats.sum_sq_ref > 0) {
    // The norm's floor, for the largest share of the norm a block can have.
    const double floor = kNoiseFactor * kFloorRoundoffs * errors.unit_roundoff;
    const double share =
        std::min(1.0, stats.max_abs_ref * std::sqrt(kBlock / stats.sum_sq_ref));
    leg->block = Judge(BlockError(stats, stats.sum_sq_ref), BlockNoise(maxima),
                       floor * share, growth, legs, BlockHp(maxima));
  }
  TakeIfWorse(leg->element, Statistic::kElement, "largest error of an element",
              maxima.noise.size(), leg);
  TakeIfWorse(leg->block, Statistic::kBlock, "largest error of a block",
              maxima.noise.size(), leg);
}

bool ExceedsMaxima(const LegJudgement& leg, const ErrorStats& part) {
  if (leg.element.judged && part.max_elem > leg.element.bound) return true;
  return leg.block.judged &&
         BlockError(part, leg.stats.sum_sq_ref) > leg.block.bound;
}

}  // namespace ttrace
