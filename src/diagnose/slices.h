// Slice matching: which slice of the reference does a wrong slice of the
// candidate equal?
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_SLICES_H_
#define TTRACE_SRC_DIAGNOSE_SLICES_H_

#include <cstdint>
#include <vector>

#include "src/diagnose/explained.h"

namespace ttrace {

// 4 x bound, but at most 1/4: beyond it slices no longer look distinct.
double MatchTolerance(double bound);

struct SliceMatch {
  int64_t slices = 0;
  // Slices that are not the reference's own and not zero.
  std::vector<int64_t> wrong;
  // Parallel to `wrong`: the reference slice that it equals, or -1.
  std::vector<int64_t> source;
  int64_t matched = 0;  // sources that are not -1
  // That all these are matched is by chance less often than 2^-bits: a slice
  // may equal any of the others.
  double bits = 0;
  // The matched slices and their sources are the same set of values: nothing
  // was lost and nothing is there twice.
  bool bijection = false;

  Explained explained() const {
    return {static_cast<double>(wrong.size()), static_cast<double>(matched),
            bits};
  }
};

// `reference` and `candidate` hold `slices` rows of `width` values. `bound` is
// what the relative error of the whole tensor may be. A slice is right within
// 4 x bound of its norm (of the mean norm, if that is larger): of errors whose
// mean square is bound^2, by Markov's inequality, not 1 in 16 is larger. It
// equals another slice if it is as close to that one, and at least 4 times
// closer than to its own. Rows that are not finite are neither.
//
// Two random slices of w values agree within t = 4 x bound <= 1/4 with a
// probability of about t^w. What makes that more than 2^-16 (fewer than 8
// values at 1/4, one at 1e-5) matches nothing.
SliceMatch MatchSlices(const std::vector<double>& reference,
                       const std::vector<double>& candidate, int64_t slices,
                       int64_t width, double bound);

// Consecutive wrong slices that come from consecutive sources.
struct MovedRun {
  int64_t to = 0;
  int64_t from = 0;
  int64_t length = 0;
};
std::vector<MovedRun> MovedRuns(const SliceMatch& match);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_SLICES_H_
