#include "src/experiment/rounding.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/base/hypot.h"
#include "src/numeric/round_to.h"
#include "ttrace/dtype.h"

namespace ttrace {
namespace {

// A value 2^e m is rounded by up to 2^e u, evenly: its square is 4^e u^2 / 3 on
// average. Over mantissas m whose logarithm is even, m^2 is 3 / (2 ln 2): this
// is the square of the relative error of one rounding, in units of u^2.
constexpr double kSquareOfOneRounding = 2 * std::numbers::ln2 / 9;

// What one rounding in each of two runs makes them differ by, in units of u.
const double kOneRoundingEach = std::sqrt(kSquareOfOneRounding * 2);

// Whether a sum itself rounds at each of its terms, not its result alone.
bool RoundsEachTerm(const Rounding& rounding) {
  return rounding.unit_roundoff <= kFp32Roundoff && rounding.longest_sum > 1;
}

// The variance of a low-precision sum over n ranks, in units of one rounding of
// its result: uncorrelated terms are rounded (1 in all), and each of the n - 1
// partial sums, of which the one of i terms has i / n of the result's variance.
double RoundingsOverRanks(int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  return 1 + (n - 1) * (n + 2) / (2 * n);
}

// Whether as many summands are the same ones. If they are, their squares differ
// by no more than the fp32 norms that these are made of are off. As many of
// which nothing is known are taken to be the same: those that a kernel adds up
// without rounding them are not noted.
bool HasSameSummands(const Rounding& rounding) {
  if (rounding.reference_summands != rounding.candidate_summands) return false;
  const double reference = rounding.reference_parts.squares;
  const double candidate = rounding.candidate_parts.squares;
  if (!(reference > 0) || !(candidate > 0)) return true;
  return std::fabs(reference - candidate) <=
         kFp32Roundoff * std::max(reference, candidate);
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
//
// What n models beside the model make goes into the loss with roundings of
// their own, as many and as large as the model's: n + 1 independent errors, of
// which a noise leg shows one.
//
// A module that makes p products, one after the other, rounds after each, and
// between two of them, where something that is not linear keeps them apart:
// 2p-1 roundings that know nothing of one another, of which the noise that it
// is given is one.
double SummationGrowth(const Rounding& rounding) {
  const double steps = std::sqrt(static_cast<double>(
      (2 * rounding.products - 1) * (1 + rounding.models_beside)));
  if (rounding.unit_roundoff > kFp32Roundoff) {
    return steps * std::sqrt((RoundingsOverRanks(rounding.reference_ranks) +
                              RoundingsOverRanks(rounding.candidate_ranks)) /
                             2);
  }
  return steps *
         std::max(1.0,
                  std::sqrt(static_cast<double>(rounding.longest_sum) / 2));
}

double SummationGrowthOfElement(const Rounding& rounding) {
  const double growth = SummationGrowth(rounding);
  return RoundsEachTerm(rounding) ? std::sqrt(2.0) * growth : growth;
}

double PartialSumRounding(const Rounding& rounding) {
  double sent = 0;
  for (const SentRounding* one :
       {&rounding.reference_sent, &rounding.candidate_sent}) {
    sent += one->unit_roundoff * one->unit_roundoff * one->roundings;
  }
  sent *= kSquareOfOneRounding;
  if (rounding.unit_roundoff <= kFp32Roundoff) return std::sqrt(sent);
  const auto partial_sums = static_cast<double>(
      rounding.reference_ranks - 1 + rounding.candidate_ranks - 1 +
      rounding.reference_terms - 1 + rounding.candidate_terms - 1);
  return Hypot(
      rounding.unit_roundoff * std::sqrt(kSquareOfOneRounding * partial_sums),
      std::sqrt(sent));
}

// Each rank's term is rounded to what is sent, and once more when it is divided
// by the ranks; each of n - 1 partial sums is as large as all terms are if they
// do not know of each other, and as the result if they are alike.
SentRounding RoundingOfSent(DType dtype, int64_t ranks, int64_t times,
                            double terms) {
  const auto n = static_cast<double>(ranks);
  SentRounding out;
  out.unit_roundoff = UnitRoundoff(dtype);
  out.roundings =
      static_cast<double>(times) * (2 * terms + (n - 1) * std::max(1.0, terms));
  out.spacing = RangeOf(dtype).step;
  out.sent = times * ranks;
  return out;
}

// Of uncorrelated summands the rounding errors have together the size of one
// rounding of the sum: there are two of them, of the one run and of the other.
double OtherSummandsRounding(const Rounding& rounding) {
  const double unit = rounding.coarsest_roundoff();
  if (unit <= kFp32Roundoff || HasSameSummands(rounding)) return 0;
  return unit * kOneRoundingEach;
}

double OtherOrderRounding(const Rounding& rounding) {
  return RoundsEachTerm(rounding) ? rounding.unit_roundoff * kOneRoundingEach
                                  : 0;
}

// Rounding to a fixed spacing is off by up to half of it, evenly: a twelfth of
// its square on average. Sums of such values need no rounding: only what is
// summed was rounded.
double SpacingRounding(const Rounding& rounding, int64_t count, double sum_sq) {
  if (!(sum_sq > 0)) return 0;
  const auto squares = [](double spacing, int64_t summands) {
    return spacing * spacing * static_cast<double>(summands) / 12;
  };
  return std::sqrt(
      (squares(rounding.reference_spacing, rounding.reference_summands) +
       squares(rounding.candidate_spacing, rounding.candidate_summands) +
       squares(rounding.reference_sent.spacing, rounding.reference_sent.sent) +
       squares(rounding.candidate_sent.spacing, rounding.candidate_sent.sent)) *
      static_cast<double>(count) / sum_sq);
}

// Of the reference's own rounding, the share that is to a fixed spacing is that
// much larger in the candidate.
double CoarserSpacing(const Rounding& rounding, int64_t count, double sum_sq) {
  const double ratio = rounding.candidate_spacing / rounding.reference_spacing;
  if (!(ratio > 1) || !(sum_sq > 0)) return 1;
  const double spacing = rounding.reference_spacing;
  const double fixed =
      spacing * spacing / 12 * static_cast<double>(count) / sum_sq;
  const double relative =
      rounding.unit_roundoff * rounding.unit_roundoff * kSquareOfOneRounding;
  return std::sqrt(1 + (ratio * ratio - 1) * fixed / (fixed + relative));
}

// The running sum of i terms of mean m and variance v has the mean square
// i^2 m^2 + i v, of which each addition rounds a fixed share. So sums of K
// terms each, of which there are N / K, are together off by the square root of
// N (K^2 m^2 / 3 + K v / 2): as K where terms have a mean, as its root
// otherwise.
double LongerTokenSums(const Rounding& rounding) {
  if (rounding.reference_tokens <= 0) return 1;
  return std::max(1.0, static_cast<double>(rounding.candidate_tokens) /
                           static_cast<double>(rounding.reference_tokens));
}

// Each of K additions of terms of one sign rounds by up to u of the running
// sum: u (1 + 2 + ... + K) / K of the result. Once terms are shorter than the
// last place of the sum, all of these may have one sign, which no smaller sum
// tells.
double LongestTokenSumLoses(const Rounding& rounding) {
  if (rounding.reference_tokens <= 0 ||
      rounding.candidate_tokens <= rounding.reference_tokens) {
    return 0;
  }
  return rounding.unit_roundoff *
         static_cast<double>(rounding.candidate_tokens + 1) / 2;
}

}  // namespace ttrace
