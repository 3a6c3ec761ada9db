// EarlyReductions: gradients that capture saw handed to a reduction before all
// micro-batches had added their terms. From the notes "reduced_early".
//
// Evidence for why a gradient is wrong, and nothing that alignment or a verdict
// depends on.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_EARLY_REDUCTIONS_H_
#define TTRACE_SRC_EXPERIMENT_EARLY_REDUCTIONS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/note_list.h"

namespace ttrace {

struct EarlyReduction {
  std::set<int> late;   // micro-batches that came after it, as records say them
  std::set<int> ranks;  // where it was seen
  // Whether the local gradient that is recorded has their terms, or is what the
  // reduction was given.
  bool local_is_whole = false;
};

struct EarlyReductions {
  // (iteration, parameter).
  std::map<std::pair<int, std::string>, EarlyReduction> seen;
  int64_t malformed = 0;  // notes that say nothing that can be read

  // That of a parameter's gradient, if one of `ranks` made it; else null.
  const EarlyReduction* Find(int iteration, const std::string& fqn,
                             const std::vector<int>& ranks) const;
};

// Never fails: what cannot be read is counted.
EarlyReductions ReadEarlyReductions(const NoteList& notes);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_EARLY_REDUCTIONS_H_
