// An optimizer's step made again: of each rank's piece of a parameter, from
// what this same rank recorded, and how far what it recorded after the step is
// from that. No reference has a part in it.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_MEASURE_REPLAYED_STEP_H_
#define TTRACE_SRC_MEASURE_REPLAYED_STEP_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "src/experiment/step_rule.h"
#include "src/experiment/step_tensors.h"
#include "src/measure/step_formula.h"
#include "ttrace/status.h"

namespace ttrace {

// Of one quantity, over all ranks that hold it.
struct StepErrors {
  int64_t judged = 0;  // elements, each rank's counted
  int64_t out = 0;     // beyond the bound
  // Of the element that comes closest to its bound, or is furthest beyond it.
  double headroom = 0;
  double error = 0;
  double bound = 0;
  std::set<int> ranks;  // with an element beyond its bound
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

struct ReplayedStep {
  StepOfParameter step;
  std::array<StepErrors, kStepQuantities> errors;
  std::array<TensorId, kStepQuantities> results;  // where each is recorded
  std::map<StepGap, std::set<int>> gaps;          // what was not judged, where
  std::set<int> ranks;                            // that were judged
  // Each element of the parameter was judged on a rank.
  bool whole = false;
  bool skipped = false;  // on some rank no step was made, and it says so
  std::optional<StepSample> sample;

  const StepErrors& Of(StepQuantity quantity) const {
    return errors[static_cast<size_t>(quantity)];
  }
  bool judged() const { return !ranks.empty(); }
  bool out() const;
  // The quantity that is furthest beyond its bound; nothing if none is.
  std::optional<StepQuantity> Worst() const;
};

using ReplayedSteps = std::map<StepOfParameter, ReplayedStep>;

// Fails only if a file cannot be read. Adds the bytes it read to `bytes`.
Result<ReplayedStep> ReplayStep(const StepCatalog& catalog,
                                const StepOfParameter& step, int64_t* bytes);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_REPLAYED_STEP_H_
