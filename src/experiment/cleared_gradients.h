// ClearedGradients: gradients that a loop cleared within an iteration, before
// a step had used them. From the notes "gradients_cleared".
//
// Evidence for why a gradient is wrong, and nothing that alignment or a verdict
// depends on: a loop may keep what it clears by itself.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_CLEARED_GRADIENTS_H_
#define TTRACE_SRC_EXPERIMENT_CLEARED_GRADIENTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "src/trace/note_list.h"

namespace ttrace {

struct Clearing {
  // After how many of the iteration's micro-batches of a rank.
  std::set<int64_t> after;
  std::set<int> ranks;
};

struct ClearedGradients {
  // (iteration, parameter).
  std::map<std::pair<int, std::string>, Clearing> seen;
  int64_t malformed = 0;  // notes that say nothing that can be read

  // That of a parameter's gradient; null: nobody cleared it.
  const Clearing* Find(int iteration, const std::string& fqn) const;
};

// Never fails: what cannot be read is counted.
ClearedGradients ReadClearedGradients(const NoteList& notes);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_CLEARED_GRADIENTS_H_
