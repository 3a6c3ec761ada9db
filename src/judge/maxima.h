// SmallVector wrong elements among many: bounds for the largest error of one
// element and of one block of elements, beside the rule for the norm (rule.h).
//
// Both maxima are compared with those of the noise legs. With s legs, n
// elements, and the statistic of a clean tensor being one more draw of what the
// legs drew from, a bound is the largest of
//   k(m) x the largest maximum of any noise leg,
//   what the largest of n errors of a normal law may be, from their rms,
//   a floor: of a block the norm's; of an element one unit in the last place,
//   or the norm's where that is more, as of few elements,
// where m is how many elements of the largest error would make up the whole
// error, so that noise which sits in a few elements widens its own bound. With
// an fp32 leg both estimates of rule F must flag it, as for the norm.
// Derivation: docs/tolerance.md, "Few wrong elements".
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_JUDGE_MAXIMA_H_
#define TTRACE_SRC_JUDGE_MAXIMA_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "src/compare/error_stats.h"
#include "src/judge/judgement.h"
#include "src/judge/rule.h"

namespace ttrace {

// Upper bound, at risk `risk`, of the largest of `elements`
// independent normal errors in units of their rms, if the rms was measured on
// `legs` as large samples.
// REQUIRES: elements >= 1, legs >= 1.
double LargestElementFactor(int64_t elements, int legs, double risk);

// The same for the largest norm of a block of kCompareBlock elements, in units
// of rms times the root of kCompareBlock. Infinite for fewer elements than a
// block has.
double LargestBlockFactor(int64_t elements, int legs, double risk);

// Adds the tests of both maxima to what JudgeLeg(errors) gave. Without noise,
// or with errors.stats measured without an element_scale, none is made. All of
// `errors` are measured with one CompareOptions::element_scale. A
// one-dimensional gradient in low precision without an fp32 leg is left to the
// norm: its rounding happens where noise legs do not reach.
void JudgeMaxima(const LegErrors& errors, LegJudgement* leg);

// Whether a part of the tensor is itself out of one of the two bounds.
bool ExceedsMaxima(const LegJudgement& leg, const ErrorStats& part);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_MAXIMA_H_
