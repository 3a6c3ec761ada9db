// Weights and optimizer state that one run changes between a step and the next
// one, and the other does not; gradients that one run does not empty.
//
// No tolerance is involved: of a tensor that nothing changed every bit is the
// same, and an empty gradient is zero. A change of a few values only is not
// judged: a script may bound its weights, and rounding decides which of them
// reach the bound.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_AUDIT_STATE_FAULTS_H_
#define TTRACE_SRC_AUDIT_STATE_FAULTS_H_

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/experiment/iteration_range.h"
#include "src/experiment/state_changes.h"
#include "src/localize/culprit.h"

namespace ttrace {

struct StateFaults {
  std::vector<Culprit> culprits;   // class C, earliest first
  std::vector<Culprit> gradients;  // class S, at most one
  // Iteration and parameter of each gradient that one side alone did not empty:
  // what is made of it, too, is another value.
  std::set<std::pair<int, std::string>> kept;
  std::vector<std::string> open;  // what cannot be judged, in words
};

// Compares what both sides looked at. What only one side did is no fault.
StateFaults FindStateFaults(
    const StateChanges& reference, const StateChanges& candidate,
    const std::optional<IterationRange>& iterations = std::nullopt);

}  // namespace ttrace

#endif  // TTRACE_SRC_AUDIT_STATE_FAULTS_H_
