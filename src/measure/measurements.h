// Measurements: all that a check learns from the bytes of tensors before it
// judges. What was measured in shares, elsewhere, joins into what one process
// would have measured.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_MEASURE_MEASUREMENTS_H_
#define TTRACE_SRC_MEASURE_MEASUREMENTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "src/measure/packed_facts.h"
#include "src/measure/reported_norm.h"
#include "src/step/replayed_step.h"
#include "src/trace/reader.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// Number of a record in its trace -> what is wrong with its bytes.
using DamagedNumbers = std::map<int64_t, std::string>;

struct Measurements {
  // The candidate's tensors by TensorFacts::order; of a share, not all.
  PackedFacts facts;
  GradientSquares squares;        // of gradients that a reported norm is of
  ReplayedSteps steps;            // the candidate's
  ReplayedSteps reference_steps;  // of those that are out of bounds there
  // Iterations after which parameters differ from the reference's
  // (experiment/unequal_starts.h).
  std::set<int> unequal_updates;
  // Of the main traces.
  DamagedNumbers damage;
  DamagedNumbers reference_damage;
  int64_t bytes_compared = 0;  // of both sides, all legs
};

// Adds what reading has met so far.
void AddDamage(const Trace& trace, DamagedNumbers* damage);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_MEASUREMENTS_H_
