// What one pass over a pair of tensors learns about their difference.
//
// With d = cand - ref, three sums carry everything: sum d^2, sum d*ref, sum
// ref^2. The rest follows without cancellation: <cand,ref> = s1 + s2,
// ||cand||^2 = s0 + 2 s1 + s2, and the projection on the reference minus one is
// s1 / s2. All fields are additive (or maxima) over disjoint boxes.
//
// A norm does not see a few wrong elements among many, so two maxima stand
// beside it: the largest error of a single element, relative to that element
// plus a constant c of the whole comparison (CompareOptions::element_scale; the
// constant keeps elements near zero from deciding), and the largest error of a
// block of kCompareBlock elements.

#ifndef TTRACE_SRC_COMPARE_ERROR_STATS_H_
#define TTRACE_SRC_COMPARE_ERROR_STATS_H_

#include <cmath>
#include <cstdint>
#include <limits>

namespace ttrace {

struct ErrorStats {
  int64_t count = 0;           // elements seen
  int64_t mismatched = 0;      // elements whose values differ in any bit
  int64_t nonfinite_ref = 0;   // NaN or Inf in the reference
  int64_t nonfinite_cand = 0;  // NaN or Inf in the candidate
  // Positions where one side is finite and the other is not, or where both are
  // not but differ in kind. Equal counts above do not imply that this is zero.
  int64_t nonfinite_differ = 0;
  // Over positions where both are finite:
  double sum_sq_err = 0;   // s0 = sum (cand - ref)^2
  double sum_err_ref = 0;  // s1 = sum (cand - ref) * ref
  double sum_sq_ref = 0;   // s2 = sum ref^2
  double max_abs_err = 0;
  double max_abs_ref = 0;
  // With q = |cand - ref| / (|ref| + c); 0 if no c was given, and for a pair of
  // integer tensors.
  double max_elem = 0;     // max q
  double sum_sq_elem = 0;  // sum q^2
  // The largest sum of d^2 over one logical block. A cut may divide a block:
  // then its largest contiguous fragment counts, so that more cuts can only
  // lower the figure. A candidate is compared along the cuts of both sides, a
  // noise leg along those of the reference alone: never along more.
  double max_block_sq_err = 0;
  // Of an estimate: by how much sum_sq_err may be smaller and larger. 0 where
  // values were compared. max_abs_err is then that of a sketch's buckets, each
  // the sum of many elements with signs: no less than an element's, in general.
  double sq_err_below = 0;
  double sq_err_above = 0;

  bool estimated() const { return sq_err_below > 0 || sq_err_above > 0; }
  // The same with the smallest, and with the largest, error that it may be.
  ErrorStats AtLow() const {
    ErrorStats low = *this;
    low.sum_sq_err = std::fmax(0, sum_sq_err - sq_err_below);
    low.sq_err_below = low.sq_err_above = 0;
    return low;
  }
  ErrorStats AtHigh() const {
    ErrorStats high = *this;
    high.sum_sq_err += sq_err_above;
    high.sq_err_below = high.sq_err_above = 0;
    return high;
  }

  // Normwise relative error ||cand - ref|| / ||ref||. An all-zero reference has
  // no scale of its own, so any difference there is infinite.
  double rel_err() const {
    if (sum_sq_err == 0) return 0;
    if (sum_sq_ref == 0) return std::numeric_limits<double>::infinity();
    return std::sqrt(sum_sq_err / sum_sq_ref);
  }
  double sum_sq_cand() const {
    return std::fmax(0, sum_sq_err + 2 * sum_err_ref + sum_sq_ref);
  }
  // alpha = <cand,ref> / <ref,ref>: the factor by which the candidate holds
  // the reference. NaN for an all-zero reference.
  double projection() const { return 1 + sum_err_ref / sum_sq_ref; }
  // What no factor explains, ||cand - alpha * ref|| / ||ref||: of the error
  // what is orthogonal to the reference. Cancels relative to the error alone,
  // not to the values.
  double beyond_factor() const {
    const double rest = sum_sq_err - sum_err_ref * sum_err_ref / sum_sq_ref;
    return std::sqrt(std::fmax(0, rest) / sum_sq_ref);
  }
  // The same relative to alpha * ref.
  double residual() const { return beyond_factor() / std::fabs(projection()); }
  // beta = <cand,ref> / <cand,cand>: 1 when the reference is the candidate plus
  // something uncorrelated with it, as when a term of a sum is missing.
  double back_projection() const {
    return (sum_err_ref + sum_sq_ref) / sum_sq_cand();
  }
  bool bitwise_equal() const { return mismatched == 0; }

  // Folds in the statistics of a disjoint part of the same tensor. Sums are
  // plain doubles: callers that need independence of the order merge in a fixed
  // one.
  void Merge(const ErrorStats& other) {
    count += other.count;
    mismatched += other.mismatched;
    nonfinite_ref += other.nonfinite_ref;
    nonfinite_cand += other.nonfinite_cand;
    nonfinite_differ += other.nonfinite_differ;
    sum_sq_err += other.sum_sq_err;
    sum_err_ref += other.sum_err_ref;
    sum_sq_ref += other.sum_sq_ref;
    max_abs_err = std::fmax(max_abs_err, other.max_abs_err);
    max_abs_ref = std::fmax(max_abs_ref, other.max_abs_ref);
    max_elem = std::fmax(max_elem, other.max_elem);
    sum_sq_elem += other.sum_sq_elem;
    max_block_sq_err = std::fmax(max_block_sq_err, other.max_block_sq_err);
    sq_err_below += other.sq_err_below;
    sq_err_above += other.sq_err_above;
  }
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_ERROR_STATS_H_
