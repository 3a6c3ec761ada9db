// For tests: what two comparisons have to agree in, bit by bit.

#ifndef TTRACE_SRC_COMPARE_TESTING_ERROR_FIELDS_H_
#define TTRACE_SRC_COMPARE_TESTING_ERROR_FIELDS_H_

#include <vector>

#include "src/compare/error_stats.h"

namespace ttrace {

inline std::vector<double> FieldsOf(const ErrorStats& s) {
  return {static_cast<double>(s.count),
          static_cast<double>(s.mismatched),
          static_cast<double>(s.nonfinite_ref),
          static_cast<double>(s.nonfinite_cand),
          static_cast<double>(s.nonfinite_differ),
          s.sum_sq_err,
          s.sum_err_ref,
          s.sum_sq_ref,
          s.max_abs_err,
          s.max_abs_ref,
          s.max_elem,
          s.sum_sq_elem,
          s.max_block_sq_err};
}

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_TESTING_ERROR_FIELDS_H_
