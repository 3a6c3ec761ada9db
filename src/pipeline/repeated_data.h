// Data-parallel ranks that read the same rows: a sampler that does not know its
// rank. Grafting replaces what a run reads, so that a wrong reader would not
// show in anything that is computed.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_PIPELINE_REPEATED_DATA_H_
#define TTRACE_SRC_PIPELINE_REPEATED_DATA_H_

#include <vector>

#include "src/align/catalog.h"

namespace ttrace {

struct RepeatedData {
  std::vector<int> ranks;     // sorted; empty: none
  std::vector<int> as;        // whose rows they read, sorted
  int64_t micro_batches = 0;  // of one of them, all alike
};

// `own` is what the candidate's ranks read themselves in one iteration. Of the
// ranks in `wrong`, which read other rows than the reference has in their
// place, those that read in every micro-batch, bit for bit, what a rank reads
// whose place is at other rows. A reference that repeats itself is no finding:
// its ranks are not in `wrong`. Nor is what has the same row everywhere.
RepeatedData FindRepeatedData(const TensorPieces& own,
                              const std::vector<int>& wrong);

}  // namespace ttrace

#endif  // TTRACE_SRC_PIPELINE_REPEATED_DATA_H_
