// A parameter that the optimizer's step left as it was, although the
// reference's step changed it.
//
// Values after a step are not compared with a tolerance: an optimizer may
// amplify rounding to any size. But no rounding leaves every bit of a piece
// unchanged that the reference's step changes in most of its elements. Frozen
// parameters do not change in the reference either.
//
// Weights of low precision have a master copy: a weight moves in the step in
// which its master has moved far enough, and masters of a grafted run start
// anew at each iteration. For them only elements count that the reference's
// step moved by several units in the last place.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_MEASURE_SKIPPED_UPDATE_H_
#define TTRACE_SRC_MEASURE_SKIPPED_UPDATE_H_

#include <string>
#include <vector>

#include "src/align/catalog.h"
#include "src/experiment/side.h"
#include "ttrace/status.h"

namespace ttrace {

struct SkippedUpdate {
  std::vector<int> ranks;  // that hold such a piece, sorted; empty: none
  int64_t unchanged = 0;   // elements of the first such piece
  int64_t changed = 0;     // of these, by the reference's step
  bool far = false;        // by several units in the last place, of a sample
};

// `id` is a candidate's tensor of role param_updated. What it was before the
// step is the reference's value if weights were grafted (that is what the
// iteration started from), else the candidate's own. Nothing where that is not
// recorded. Of a candidate's summaries only a step that no rank made is told,
// and only if weights were grafted. Fails only if a file cannot be read.
Result<SkippedUpdate> FindSkippedUpdate(const Side& reference,
                                        const Side& candidate,
                                        const TensorId& id);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_SKIPPED_UPDATE_H_
