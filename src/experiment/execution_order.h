// One order over all tensors of a run, from the sequence each rank recorded.
//
// Ranks have no common clock. What makes their sequences comparable is the
// dataflow: an iteration runs forward through the pipeline stages and backward
// through them in reverse, then reduces, then updates. Virtual stages are gone
// through round by round (rounds.h). Inside a stage the recorded sequence
// decides, that of its first rank (common_clock.h). The first occurrence
// counts: every module's first micro-batch comes before any schedule
// interleaves the rest. Where optimizers step in turn an iteration does all
// that once for each (iteration_parts.h).
//
// A stage that holds several chunks of layers is gone through several times,
// and then stages do not follow each other. A reference without stages recorded
// the same dataflow in one sequence: its order is taken where it has the
// tensor.
//
// Thread safety: pure functions; ExecutionKeys is const after construction.

#ifndef TTRACE_SRC_EXPERIMENT_EXECUTION_ORDER_H_
#define TTRACE_SRC_EXPERIMENT_EXECUTION_ORDER_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "src/align/catalog.h"
#include "src/experiment/common_clock.h"
#include "src/experiment/iteration_parts.h"
#include "src/experiment/rounds.h"
#include "src/experiment/stages.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

struct ExecutionKey {
  int iteration = 0;
  int part = 0;  // between two optimizers that step in turn
  int phase = 0;
  int round = 0;         // which of a stage's virtual ones
  int stage = 0;         // pipeline stage, negated where the data runs backward
  int64_t sequence = 0;  // by the common clock
  int rank = 0;
  int64_t own = 0;  // the rank's own sequence number

  auto operator<=>(const ExecutionKey&) const = default;
};

// 0 state before the step, 1 forward, 2 loss, 3 backward and recompute, 4 local
// gradients, 5 reduced gradients, 6 gradient norm, 7 the optimizer's state
// before its step, 8 after the step.
int PhaseOf(const TensorId& id);

class ExecutionKeys {
 public:
  // Of the tensors of one leg.
  explicit ExecutionKeys(const std::map<TensorId, TensorPieces>& tensors);

  ExecutionKey Of(const TensorId& id, const TensorPieces& pieces) const;

 private:
  Rounds rounds_;
  CommonClock clock_;
  IterationParts parts_;
  std::optional<Stages> stages_;  // if there are any
};

// A tensor of the candidate, and the key of its own run.
using Ordered = std::pair<ExecutionKey, const TensorId*>;

// Puts activations and their gradients, each part's and phase's by themselves,
// in the reference's order. `sequence_of` says where the reference has a
// tensor, -1 if it has not: that one stays behind what its stage computed
// before it.
// REQUIRES: `order` is sorted
void FollowReference(const std::function<int64_t(const TensorId&)>& sequence_of,
                     std::vector<Ordered>* order);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_EXECUTION_ORDER_H_
