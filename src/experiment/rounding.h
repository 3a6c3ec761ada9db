// How the values of one tensor are rounded: in which precision, in sums of how
// many terms, over how many ranks; and what follows for the difference of two
// runs.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_ROUNDING_H_
#define TTRACE_SRC_EXPERIMENT_ROUNDING_H_

#include <algorithm>
#include <cstdint>

#include "ttrace/dtype.h"

namespace ttrace {

// Legs that compute in fp32 or better sum in their own precision.
inline constexpr double kFp32Roundoff = UnitRoundoff(DType::kF32);

// What a reduction adds that sends a gradient in lower precision than it is
// computed in: its roundings to that, each of its size, as a multiple of one
// rounding of the result.
struct SentRounding {
  double unit_roundoff = 0;  // 0: gradients are sent as they are
  double roundings = 0;
  double spacing = 0;  // of the smallest numbers that are sent
  int64_t sent = 0;    // how many such numbers the result is a sum of
};

// What ranks and micro-batches add to a parameter's gradient, each of which is
// rounded by itself. Zeros: not known.
struct GradientParts {
  double squares = 0;  // of all elements of all parts, added up
  double largest = 0;  // the same of the largest element of each
};

struct Rounding {
  double unit_roundoff = 0;  // of the precision its values are computed in
  // Of the code that makes them, where that is coarser: what a module is given
  // its container computes.
  double maker_roundoff = 0;
  double coarsest_roundoff() const {
    return std::max(unit_roundoff, maker_roundoff);
  }
  // Terms of the longest sum that the value hangs on. Matters where sums are
  // made in the values' own precision.
  int64_t longest_sum = 1;
  // Products, with matrices of its own or of activations, that a module makes
  // one after the other,
  // where noise shows no more than what goes into the first of them: 1 unless
  // it is isolated and holds several matrices itself.
  int64_t products = 1;
  // Models whose own rounding reaches the value through the loss, beside that
  // of the model, and which no noise leg disturbs.
  int64_t models_beside = 0;
  // Ranks that a value of low precision is summed over, in each run.
  int64_t reference_ranks = 1;
  int64_t candidate_ranks = 1;
  // Terms that a rank adds to a parameter's gradient of low precision: one for
  // each use in each micro-batch.
  int64_t reference_terms = 1;
  int64_t candidate_terms = 1;
  // The spacing of each run's smallest numbers as recorded values are meant, so
  // times a gradient's declared scale (a loss scale); 0: not known. And of how
  // many values that were rounded to it a value is a sum, over ranks and
  // micro-batches, whatever precision they are added in.
  double reference_spacing = 0;
  double candidate_spacing = 0;
  int64_t reference_summands = 1;
  int64_t candidate_summands = 1;
  GradientParts reference_parts;  // as local gradients are meant
  GradientParts candidate_parts;
  // Tokens that one operation of each run sums up into a gradient that is a sum
  // over tokens: those of a rank and a micro-batch. 0: not known.
  int64_t reference_tokens = 0;
  int64_t candidate_tokens = 0;
  SentRounding reference_sent;
  SentRounding candidate_sent;
};

// Of a reduction over `ranks`, made `times` in an iteration, of terms whose
// squares are `terms` times that of their sum. Derivation: docs/tolerance.md.
SentRounding RoundingOfSent(DType dtype, int64_t ranks, int64_t times,
                            double terms);

// By how much sums exceed one rounding of their result, which is what a noise
// leg shows: multiplies noise and floors. Derivation: docs/tolerance.md.
double SummationGrowth(const Rounding& rounding);

// The same for a single element, the worst of many: one term may be as large as
// all others together, and then every partial sum behind it rounds what is as
// large as that term. Derivation: docs/tolerance.md.
double SummationGrowthOfElement(const Rounding& rounding);

// What sums of low precision that are made one term after the other, by ranks
// or by a gradient that is accumulated, add to the relative difference of two
// runs if one term is nearly all of the sum and comes first: then every partial
// sum rounds what is as large as the result. 0 in fp32, and where nothing is
// summed so, but for what is sent in lower precision. Derivation:
// docs/tolerance.md.
double PartialSumRounding(const Rounding& rounding);

// The relative difference of two runs that round other summands, of which a
// value is the sum over ranks and micro-batches: the roundings of the one are
// not those of the other. 0 in fp32, and where the summands are as many and, as
// far as is known, as large. A noise leg shows it only if its noise is as large
// as the rounding, which that of float32 values is not that are cast before
// they are used. Derivation: docs/tolerance.md.
double OtherSummandsRounding(const Rounding& rounding);

// What one rounding in either run makes them differ by, where each of a sum's
// terms is one: in fp32, by two runs that add in other orders. Before
// SummationGrowth; 0 where sums are made in higher precision than their
// results. Derivation: docs/tolerance.md.
double OtherOrderRounding(const Rounding& rounding);

// What rounding to the spacing of the smallest numbers adds to the relative
// difference of two runs, in `count` elements whose squares sum up to
// `sum_sq`. Negligible unless values are small beside the smallest normal
// number. Derivation: docs/tolerance.md.
double SpacingRounding(const Rounding& rounding, int64_t count, double sum_sq);

// By how much noise of the reference must grow for a candidate whose smallest
// numbers are wider apart, in values whose rounding is mostly of that kind.
double CoarserSpacing(const Rounding& rounding, int64_t count, double sum_sq);

// By how much the candidate's sums over tokens may be off more than the
// reference's, at least 1, where an operation adds token after token in low
// precision. Derivation: docs/tolerance.md.
double LongerTokenSums(const Rounding& rounding);

// What such a sum may lose at most, relative to its result, where it has more
// tokens than the reference's; 0 otherwise.
double LongestTokenSumLoses(const Rounding& rounding);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ROUNDING_H_
