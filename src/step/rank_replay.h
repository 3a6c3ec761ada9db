// An optimizer's step made again on one rank: of its piece of a parameter, from
// what this same rank recorded, and how far what it recorded after the step is
// from that. No reference has a part in it.
//
// It is made where the step was, as soon as all of it is recorded, or by a
// check, of the values that the trace holds: by the same code, with the same
// numbers.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_STEP_RANK_REPLAY_H_
#define TTRACE_SRC_STEP_RANK_REPLAY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "src/step/step_formula.h"
#include "src/step/step_rule.h"
#include "src/step/step_tensors.h"
#include "src/trace/record_table.h"
#include "ttrace/status.h"

namespace ttrace {

// Of one quantity, on one rank or over all that hold it.
struct StepErrors {
  int64_t judged = 0;  // elements, each rank's counted
  int64_t out = 0;     // beyond the bound
  // Of the element that comes closest to its bound, or is furthest beyond it.
  double headroom = 0;
  double error = 0;
  double bound = 0;
  std::set<int> ranks;  // with an element beyond its bound; of one rank: none
};

// Elements of one rank, some of them beyond a bound, for whoever asks why.
struct StepSample {
  int rank = 0;
  StepRule rule;
  StepSetting setting;
  std::vector<StepQuantity> quantities;  // that were judged
  std::array<bool, kStepFields> known = {};
  std::vector<StepElement> elements;
  double norm = 0;  // as reported; 0: not known
};

struct RankReplay {
  std::array<StepErrors, kStepQuantities> errors;
  std::set<StepGap> gaps;      // what was not judged
  bool judged = false;         // something was
  bool skipped = false;        // it had not to be made, as the rank says
  std::vector<uint8_t> whole;  // 1: all of that piece was (PiecesOfStep)
  int norms = 0;               // that may have clipped (StepTensors)
  std::optional<StepSample> sample;
};

// The pieces of the parameter that `rank` steps, in the order of its records.
std::vector<Record> PiecesOfStep(const StepTensors& tensors, int rank);

// Fails only if a file cannot be read. What values were not kept of is a gap.
Result<RankReplay> ReplayOnRank(const StepCatalog& catalog,
                                const StepTensors& tensors, int rank);

}  // namespace ttrace

#endif  // TTRACE_SRC_STEP_RANK_REPLAY_H_
