// The factor that a tensor shares with others of its kind.
//
// A few elements are close to some multiple of the reference's, whatever they
// are: a number that is fitted to them says nothing. A number that others have
// is not fitted to them, and one element that follows it to the last digits
// does so by no chance.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_SHARED_FACTOR_H_
#define TTRACE_SRC_DIAGNOSE_SHARED_FACTOR_H_

#include <cstdint>
#include <optional>

#include "src/compare/error_stats.h"
#include "src/diagnose/evidence.h"

namespace ttrace {

struct SharedFactor {
  double alpha = 1;
  int64_t tensors = 0;  // that have it
};

// Of the tensors of the culprit's role and iteration that are out of bounds in
// its leg and have elements enough to fit a factor to; nothing unless they are
// several, and all of them have one and the same.
std::optional<SharedFactor> FactorOfOthers(const Evidence& evidence);

// What alpha leaves of the candidate, relative to the reference: as
// ErrorStats::beyond_factor, of a number that was not fitted.
// REQUIRES: stats.sum_sq_ref > 0
double BeyondGivenFactor(const ErrorStats& stats, double alpha);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_SHARED_FACTOR_H_
