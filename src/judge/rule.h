// The tolerance rule: from measured errors of one tensor to a LegJudgement.
//
// Two estimates must both flag a tensor (docs/tolerance.md, "Rule F"):
//   B  err(C, R)  against the rms of err(P_s, R) over the noise legs P_s;
//   D  err(C, H)  against max(err(R, H), that rms), H the fp32 leg.
// D knows rounding that noise on values cannot stir up (sums over tokens), B
// holds where two low-precision runs landed far apart by chance.
//
// Source: TTrace (arXiv 2506.09280), section on tolerance estimation, extended
// from noise on the embedding to noise on every leaf and by the comparison with
// a higher precision.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_JUDGE_RULE_H_
#define TTRACE_SRC_JUDGE_RULE_H_

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "src/base/hypot.h"
#include "src/experiment/rounding.h"
#include "src/judge/constants.h"
#include "src/judge/judgement.h"
#include "ttrace/leg.h"

namespace ttrace {

struct LegErrors {
  Leg leg;
  ErrorStats stats;               // candidate against the reference
  std::vector<ErrorStats> noise;  // each noise leg, against the reference
  // The reference's own replay against its real leg, if they differ.
  std::optional<ErrorStats> repeat;
  // Against the reference's fp32 leg. Both or neither, but that an isolated leg
  // has the reference's alone.
  std::optional<ErrorStats> candidate_fp32;
  std::optional<ErrorStats> reference_fp32;
  bool vector_gradient = false;  // one-dimensional parameter gradient
  bool lookup_gradient = false;  // of a table that tokens look up
  Rounding rounding;
  double risk = kRunRisk;  // of one test
  // The squares of all terms that the reference's value is the sum of, added
  // up; 0: not known.
  double terms_sq = 0;
  // What ranks and micro-batches add to it, in units of its own squares:
  // `squares` of all of them, `largest` of their mean. Zeros: not known.
  GradientParts parts;

  // Whether some of the errors are estimates.
  bool estimated() const;
  // A sum over tokens that low precision rounds term by term, and noise on
  // values does not.
  bool sums_tokens() const { return vector_gradient || lookup_gradient; }
  // How much more the candidate may round in such a sum than the reference.
  double longer_sums() const {
    return sums_tokens() ? LongerTokenSums(rounding) : 1;
  }
  // What the candidate's sum may lose, if it is longer than the reference's.
  double long_sum_loss() const {
    return sums_tokens() ? LongestTokenSumLoses(rounding) : 0;
  }
  // How large independent terms would make the sum, at least its own norm and
  // relative to it. More than 1 where terms cancel: their sum is then rounded
  // as they are, not as what is left of them.
  double cancelled() const {
    const double sum_sq = stats.sum_sq_ref;
    const double terms_over_sum = sum_sq > 0 ? terms_sq / sum_sq : 0;
    return std::sqrt(std::max({1.0, terms_over_sum, parts.squares}));
  }
  // The same for a single element, of which parts may be as large as the
  // largest of any, while next to nothing is left of them. Relative to the root
  // of the mean square, so never to the element.
  double cancelled_in_element() const {
    return std::max(cancelled(), std::sqrt(parts.largest));
  }
  // What is rounded beside what noise legs show: partial sums, and numbers
  // below the smallest normal one. Relative to the norm of `stats`' reference.
  double unseen_rounding() const {
    return Hypot(cancelled() * PartialSumRounding(rounding),
                 SpacingRounding(rounding, stats.count, stats.sum_sq_ref));
  }
  // The least that two runs may differ by, relative to the norm, whatever noise
  // legs show.
  double least_rounding() const;
  // Noise as the candidate's smallest numbers make it.
  double noise_growth() const {
    return CoarserSpacing(rounding, stats.count, stats.sum_sq_ref);
  }
};

// How many independent errors the noise of a tensor is made of, at most its
// elements: fewer if a common factor (its projection) or few elements are much
// of it. By Satterthwaite's approximation from the share of the projection; a
// normal law of n elements has its largest at sqrt(2 ln n).
// REQUIRES: noise is not empty.
double IndependentErrors(const std::vector<ErrorStats>& noise);

// Makes the norm's test, which is the judgement's first.
LegJudgement JudgeLeg(const LegErrors& errors);

// The same where some errors are estimates: out of bound if they are so by the
// least that they can be, within if they are by the largest. Else
// LegJudgement::uncertain.
LegJudgement JudgeEstimates(const LegErrors& errors);

// What the norm of a part of the tensor may be: the same rule for that part
// alone. Nothing where it has no noise of its own or its bound is too wide.
std::optional<Test> JudgePart(const LegErrors& part);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_RULE_H_
