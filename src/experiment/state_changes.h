// What became of weights, optimizer state and gradients between a step and the
// next iteration, as ranks noted it ("found_states", "found_gradients"):
// nothing but the optimizer's step changes the former, and the latter are
// emptied.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_STATE_CHANGES_H_
#define TTRACE_SRC_EXPERIMENT_STATE_CHANGES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/trace/note_list.h"

namespace ttrace {

// A parameter or a state of its optimizer, as an iteration found it.
struct FoundState {
  int iteration = 0;
  std::string arg;  // "updated", "master", "exp_avg", "step", ...
  std::string fqn;
  auto operator<=>(const FoundState&) const = default;
};

// Of a few values of it, on all ranks.
struct StateChange {
  int64_t sampled = 0;
  int64_t differs = 0;
  std::optional<double> factor;  // found = factor x left; one for all ranks
  std::set<int> ranks;

  // Whether it reached most of many values: what only bounds them, as clipping
  // does, may reach one value more in one run than in the other by rounding.
  bool of_most() const { return sampled >= 16 && 2 * differs >= sampled; }
};

// Of tensors that were changed alike; nothing if they were not.
std::optional<double> CommonFactor(const std::optional<double>& a,
                                   const std::optional<double>& b);

// Gradients that held something before the backward of an iteration added to
// them ("found_gradients").
struct KeptGradients {
  int64_t parameters = 0;  // looked at, on the rank that has most
  std::map<std::string, std::set<int>> ranks;  // fqn -> those that have it
};

struct StateChanges {
  // Iteration -> states that were compared with what the step before it left.
  std::map<int, std::set<std::string>> looked_at;
  std::map<FoundState, StateChange> changed;
  std::map<int, KeptGradients> gradients;  // by iteration
  // Behind whose step another one was made, without a forward ("second_step").
  std::set<int> stepped_again;
  int64_t malformed = 0;  // notes that say nothing that can be read

  bool LookedAt(const FoundState& state) const;
};

// Never fails: what cannot be read is counted.
StateChanges ReadStateChanges(const NoteList& notes);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_STATE_CHANGES_H_
