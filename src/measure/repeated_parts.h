// Ranks that hold, as their own part of a tensor, the part of another rank:
// data read by a sampler that does not know its rank, weights drawn from the
// same random numbers on every rank. Grafting replaces both, so that nothing
// that is computed would show it.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_MEASURE_REPEATED_PARTS_H_
#define TTRACE_SRC_MEASURE_REPEATED_PARTS_H_

#include <vector>

#include "src/align/catalog.h"

namespace ttrace {

struct RepeatedParts {
  std::vector<int> ranks;   // sorted; empty: none
  std::vector<int> owners;  // whose part they hold, sorted
};

// `own` is what the candidate's ranks brought themselves. Of the ranks in
// `wrong`, which hold other values than the reference has in their place, those
// that hold, bit for bit and in every micro-batch, what a rank holds whose
// place is elsewhere. A reference that repeats itself is no finding: its ranks
// are not in `wrong`. Nor is a tensor that is the same all along the dimension
// that is cut, as positions, masks and constant weights are. `beside`: what is
// read together with it, of which such ranks have to hold the same too. Two
// parts of a batch may well have equal labels.
RepeatedParts FindRepeatedParts(
    const TensorPieces& own, const std::vector<int>& wrong,
    const std::vector<const TensorPieces*>& beside = {});

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_REPEATED_PARTS_H_
