// How long the sums of a run are: the longer, the more often they round.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_LONGEST_SUMS_H_
#define TTRACE_SRC_EXPERIMENT_LONGEST_SUMS_H_

#include <cstdint>

#include "src/experiment/side.h"

namespace ttrace {

struct LongestSums {
  // Terms of a sum inside an operation: an activation is a sum over a
  // parameter's dimension or over the sequence, a parameter's gradient also
  // over all tokens of the iteration.
  int64_t activation = 1;
  int64_t gradient = 1;
  // Ranks that one value of low precision is summed over, in each run.
  int64_t reference_ranks = 1;
  int64_t candidate_ranks = 1;
};

LongestSums FindLongestSums(const Side& reference, const Side& candidate);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_LONGEST_SUMS_H_
