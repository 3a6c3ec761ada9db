// An optimizer's step of one parameter made again on all ranks that have a
// piece of it.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_STEP_REPLAYED_STEP_H_
#define TTRACE_SRC_STEP_REPLAYED_STEP_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/step/rank_replay.h"
#include "src/step/step_tensors.h"
#include "ttrace/status.h"

namespace ttrace {

struct ReplayedStep {
  StepOfParameter step;
  std::array<StepErrors, kStepQuantities> errors;
  std::array<TensorId, kStepQuantities> results;  // where each is recorded
  std::map<StepGap, std::set<int>> gaps;          // what was not judged, where
  std::set<int> ranks;                            // that were judged
  // Each element of the parameter was judged on a rank.
  bool whole = false;
  bool skipped = false;  // on some rank it had not to be made, and it says so
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

// Steps that ranks made again themselves.
using StoredReplays = std::map<std::pair<StepOfParameter, int>, RankReplay>;

// Of ranks that made it again themselves, takes what they found. Fails only if
// a file cannot be read. Adds the bytes that were compared to `bytes`, whoever
// did it.
Result<ReplayedStep> ReplayStep(const StepCatalog& catalog,
                                const StoredReplays& stored,
                                const StepOfParameter& step, int64_t* bytes);

}  // namespace ttrace

#endif  // TTRACE_SRC_STEP_REPLAYED_STEP_H_
