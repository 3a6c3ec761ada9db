// Which of several copies of one region counts: a good one must not hide a bad
// one.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_COMPARE_WORST_COPY_H_
#define TTRACE_SRC_COMPARE_WORST_COPY_H_

#include <cmath>
#include <optional>
#include <tuple>

#include "src/compare/error_stats.h"

namespace ttrace {

inline bool Worse(const ErrorStats& a, const ErrorStats& b) {
  return std::make_tuple(a.nonfinite_differ, a.sum_sq_err, a.mismatched) >
         std::make_tuple(b.nonfinite_differ, b.sum_sq_err, b.mismatched);
}

// The copy of the worst norm need not have the worst element: each maximum is
// that of all copies.
class WorstCopy {
 public:
  void Add(const ErrorStats& copy) {
    if (!worst_ || Worse(copy, *worst_)) worst_ = copy;
    max_elem_ = std::fmax(max_elem_, copy.max_elem);
    max_block_sq_err_ = std::fmax(max_block_sq_err_, copy.max_block_sq_err);
  }
  // REQUIRES: Add was called.
  ErrorStats stats() const {
    ErrorStats out = worst_.value_or(ErrorStats{});
    out.max_elem = max_elem_;
    out.max_block_sq_err = max_block_sq_err_;
    return out;
  }

 private:
  std::optional<ErrorStats> worst_;
  double max_elem_ = 0;
  double max_block_sq_err_ = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_WORST_COPY_H_
