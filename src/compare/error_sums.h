// ErrorSums: ErrorStats while they are being added up.
//
// The sums are exact, so that any order of boxes, shards and threads
// gives the same bits. ErrorStats, with plain doubles, is what leaves the
// stage.

#ifndef TTRACE_SRC_COMPARE_ERROR_SUMS_H_
#define TTRACE_SRC_COMPARE_ERROR_SUMS_H_

#include <algorithm>
#include <cstdint>

#include "src/compare/error_stats.h"
#include "src/numeric/exact_sum.h"

namespace ttrace {

struct ErrorSums {
  int64_t count = 0;
  int64_t mismatched = 0;
  int64_t nonfinite_ref = 0;
  int64_t nonfinite_cand = 0;
  int64_t nonfinite_differ = 0;
  ExactSum sum_sq_err;
  ExactSum sum_err_ref;
  ExactSum sum_sq_ref;
  double max_abs_err = 0;
  double max_abs_ref = 0;
  double max_elem = 0;
  ExactSum sum_sq_elem;
  double max_block_sq_err = 0;

  void Merge(const ErrorSums& other) {
    count += other.count;
    mismatched += other.mismatched;
    nonfinite_ref += other.nonfinite_ref;
    nonfinite_cand += other.nonfinite_cand;
    nonfinite_differ += other.nonfinite_differ;
    sum_sq_err.Merge(other.sum_sq_err);
    sum_err_ref.Merge(other.sum_err_ref);
    sum_sq_ref.Merge(other.sum_sq_ref);
    max_abs_err = std::max(max_abs_err, other.max_abs_err);
    max_abs_ref = std::max(max_abs_ref, other.max_abs_ref);
    max_elem = std::max(max_elem, other.max_elem);
    sum_sq_elem.Merge(other.sum_sq_elem);
    max_block_sq_err = std::max(max_block_sq_err, other.max_block_sq_err);
  }

  ErrorStats Stats() const {
    ErrorStats stats;
    stats.count = count;
    stats.mismatched = mismatched;
    stats.nonfinite_ref = nonfinite_ref;
    stats.nonfinite_cand = nonfinite_cand;
    stats.nonfinite_differ = nonfinite_differ;
    stats.sum_sq_err = sum_sq_err.Value();
    stats.sum_err_ref = sum_err_ref.Value();
    stats.sum_sq_ref = sum_sq_ref.Value();
    stats.max_abs_err = max_abs_err;
    stats.max_abs_ref = max_abs_ref;
    stats.max_elem = max_elem;
    stats.sum_sq_elem = sum_sq_elem.Value();
    stats.max_block_sq_err = max_block_sq_err;
    return stats;
  }
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_ERROR_SUMS_H_
