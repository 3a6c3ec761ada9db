#include "src/judge/maxima.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/hypot.h"
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

Noise ElementNoise(const LegErrors& errors) {
  Noise out;
  double sum = 0;
  for (const ErrorStats& leg : errors.noise) {
    out.largest = std::max(out.largest, leg.max_elem);
    sum += leg.sum_sq_elem;
  }
  if (out.largest == 0) return out;
  const auto legs = static_cast<double>(errors.noise.size());
  const int64_t count = errors.noise.front().count;
  out.equivalent = sum / legs / (out.largest * out.largest);
  out.extreme = LargestElementFactor(
                    count, static_cast<int>(errors.noise.size()), errors.risk) *
                std::sqrt(sum / legs / static_cast<double>(count));
  return out;
}

Noise BlockNoise(const LegErrors& errors) {
  Noise out;
  double squares = 0;  // of the norm's error
  double equivalent = 0;
  for (const ErrorStats& leg : errors.noise) {
    const double largest = BlockError(leg, leg.sum_sq_ref);
    squares += leg.rel_err() * leg.rel_err();
    if (largest <= out.largest) continue;
    out.largest = largest;
    // The largest error of any element is at least that of this block's.
    equivalent = leg.max_block_sq_err / (leg.max_abs_err * leg.max_abs_err);
  }
  if (out.largest == 0) return out;
  const auto legs = static_cast<double>(errors.noise.size());
  const int64_t count = errors.noise.front().count;
  out.equivalent = equivalent;
  out.extreme = LargestBlockFactor(count, static_cast<int>(errors.noise.size()),
                                   errors.risk) *
                std::sqrt(squares / legs * kBlock / static_cast<double>(count));
  return out;
}

// The largest element in the units that errors of elements have.
double LargestElement(const ErrorStats& stats) {
  if (stats.max_abs_ref == 0) return 0;
  const double rms =
      std::sqrt(stats.sum_sq_ref / static_cast<double>(stats.count));
  return stats.max_abs_ref / (stats.max_abs_ref + rms);
}

// The two errors of one statistic against the fp32 leg.
struct HighPrecision {
  double candidate = 0;
  double reference = 0;
  double equivalent = 1;  // as Noise::equivalent, of `reference`
};

// `unseen`: what may be rounded beside what noise legs show.
Test Judge(Statistic statistic, double err, const Noise& noise, double floor,
           double unseen, const LegErrors& errors,
           const std::optional<HighPrecision>& hp) {
  const auto legs = static_cast<int>(errors.noise.size());
  const double growth = SummationGrowthOfElement(errors.rounding);
  Test out;
  out.statistic = statistic;
  out.value = err;
  out.noise = noise.largest;
  const double factor = NoiseFactor(noise.equivalent, legs, errors.risk);
  const double coarser = errors.noise_growth();
  const double by_noise = coarser * factor * noise.largest;
  const double allowed = std::max({by_noise, coarser * noise.extreme, floor});
  Expectation& expected = out.expected;
  expected.origin = allowed == floor      ? Origin::kFloor
                    : allowed == by_noise ? Origin::kNoise
                                          : Origin::kLargestOfMany;
  expected.noise_legs = legs;
  expected.fp32_leg = hp.has_value();
  expected.growth = growth;
  // A floor, and the largest of many errors, are bounds themselves.
  expected.factor = expected.origin == Origin::kNoise ? factor : 1;
  out.bound = growth * allowed;
  if (unseen > out.bound) {
    out.bound = unseen;
    expected.origin = Origin::kFloor;
    expected.factor = 1;
  }
  out.headroom = err / out.bound;
  if (hp) {
    out.value_fp32 = hp->candidate;
    out.reference_fp32 = hp->reference;
    // The reference's own rounding is a single sample.
    const double factor_hp = NoiseFactor(hp->equivalent, 1, errors.risk);
    const double bound_hp =
        std::max(out.bound, factor_hp * errors.longer_sums() * hp->reference);
    if (hp->candidate / bound_hp < out.headroom) {
      out.headroom = hp->candidate / bound_hp;
      if (bound_hp > out.bound) {
        expected.origin = Origin::kReferenceFp32;
        expected.factor = factor_hp;
      }
      out.bound = bound_hp;
    }
  }
  expected.scale = out.bound / expected.factor;
  if (errors.long_sum_loss() > out.bound) {
    out.bound = expected.scale = errors.long_sum_loss();
    out.headroom = err / out.bound;
    expected.factor = 1;
    expected.origin = Origin::kLongSum;
  }
  return out;
}

std::optional<HighPrecision> ElementHp(const LegErrors& errors) {
  if (!errors.candidate_fp32 || !errors.reference_fp32) return std::nullopt;
  const ErrorStats& ref = *errors.reference_fp32;
  HighPrecision out;
  out.candidate = errors.candidate_fp32->max_elem;
  out.reference = ref.max_elem;
  if (ref.max_elem > 0) {
    out.equivalent = ref.sum_sq_elem / (ref.max_elem * ref.max_elem);
  }
  return out;
}

std::optional<HighPrecision> BlockHp(const LegErrors& errors) {
  if (!errors.candidate_fp32 || !errors.reference_fp32) return std::nullopt;
  const ErrorStats& cand = *errors.candidate_fp32;
  const ErrorStats& ref = *errors.reference_fp32;
  HighPrecision out;
  out.candidate = BlockError(cand, cand.sum_sq_ref);
  out.reference = BlockError(ref, ref.sum_sq_ref);
  if (ref.max_abs_err > 0) {
    out.equivalent = ref.max_block_sq_err / (ref.max_abs_err * ref.max_abs_err);
  }
  return out;
}

}  // namespace

double LargestElementFactor(int64_t elements, int legs, double risk) {
  // g with P(|t| > g) <= risk / n for Student's t of nu = s n degrees, which
  // is what an error over an independent rms follows. With t = N / sqrt(W) and
  // P(|N| > a) <= exp(-a^2 / 2), it is at most
  //   E exp(-g^2 W / 2) = (1 + g^2 / nu)^(-nu / 2).
  const auto n = static_cast<double>(std::max<int64_t>(1, elements));
  const double nu = n * std::max(1, legs);
  return std::sqrt(nu * std::expm1(2 / nu * std::log(n / risk)));
}

double LargestBlockFactor(int64_t elements, int legs, double risk) {
  // A block's sum of b squares exceeds b + 2 sqrt(b t) + 2 t, and the mean of
  // the nu = s n squares of noise falls below 1 - 2 sqrt(t / nu), with
  // probability exp(-t) each. Source: B. Laurent, P. Massart, Adaptive
  // estimation of a quadratic functional by model selection, 2000, lemma 1.
  if (elements < kCompareBlock) return std::numeric_limits<double>::infinity();
  const auto n = static_cast<double>(elements);
  const double nu = n * std::max(1, legs);
  const double t = std::log(2 * std::ceil(n / kBlock) / risk);
  const double low = 1 - 2 * std::sqrt(t / nu);
  return std::sqrt((1 + 2 * std::sqrt(t / kBlock) + 2 * t / kBlock) / low);
}

void JudgeMaxima(const LegErrors& errors, LegJudgement* leg) {
  const bool has_hp = errors.candidate_fp32 && errors.reference_fp32;
  const double unit = errors.rounding.unit_roundoff;
  if (errors.noise.empty()) return;
  if (errors.sums_tokens() && unit > kFp32Roundoff && !has_hp) return;

  const ErrorStats& stats = errors.stats;
  // As the norm's: what terms that cancel are rounded by is left of them.
  const double coarsest =
      errors.cancelled() * errors.rounding.coarsest_roundoff();
  const double summands =
      errors.cancelled() * OtherSummandsRounding(errors.rounding);
  const double orders =
      errors.cancelled() * OtherOrderRounding(errors.rounding);
  const double element_floor =
      std::max(2 * coarsest,
               NoiseFactor(static_cast<double>(stats.count),
                           static_cast<int>(errors.noise.size()), errors.risk) *
                   std::max({kFloorRoundoffs * coarsest, summands, orders}) *
                   LargestElement(stats));
  const double extreme = LargestElementFactor(
      stats.count, std::numeric_limits<int>::max(), errors.risk);
  // What parts that cancel are rounded by.
  const double of_parts = Hypot(PartialSumRounding(errors.rounding),
                                OtherSummandsRounding(errors.rounding));
  const double smallest =
      SpacingRounding(errors.rounding, stats.count, stats.sum_sq_ref);
  leg->Add(Judge(
      Statistic::kElement, stats.max_elem, ElementNoise(errors), element_floor,
      Hypot(errors.cancelled_in_element() * of_parts, smallest) * extreme,
      errors, ElementHp(errors)));
  // A tensor of one block: its norm says the same, and more sharply.
  if (stats.count > kCompareBlock && stats.sum_sq_ref > 0) {
    // The norm's floor, for the largest share of the norm a block can have.
    const double floor =
        kNoiseFactor * std::max(kFloorRoundoffs * coarsest, orders);
    const double share =
        std::min(1.0, stats.max_abs_ref * std::sqrt(kBlock / stats.sum_sq_ref));
    // Summands and partial sums round in proportion to what a block holds, the
    // smallest numbers alike everywhere.
    const double largest_parts = std::sqrt(errors.parts.largest * kBlock /
                                           static_cast<double>(stats.count));
    const double in_block =
        std::max(errors.cancelled() * share,
                 std::min(errors.cancelled(), largest_parts));
    const double unseen = Hypot(
        in_block * of_parts,
        SpacingRounding(errors.rounding, kCompareBlock, stats.sum_sq_ref));
    leg->Add(Judge(Statistic::kBlock, BlockError(stats, stats.sum_sq_ref),
                   BlockNoise(errors), floor * share, kNoiseFactor * unseen,
                   errors, BlockHp(errors)));
  }
}

bool ExceedsMaxima(const LegJudgement& leg, const ErrorStats& part) {
  const Test* element = leg.Find(Statistic::kElement);
  if (element != nullptr && part.max_elem > element->bound) return true;
  const Test* block = leg.Find(Statistic::kBlock);
  return block != nullptr &&
         BlockError(part, leg.stats.sum_sq_ref) > block->bound;
}

}  // namespace ttrace
