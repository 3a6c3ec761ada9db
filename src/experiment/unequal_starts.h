// Iterations that cannot be compared as experiments of their own.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_EXPERIMENT_UNEQUAL_STARTS_H_
#define TTRACE_SRC_EXPERIMENT_UNEQUAL_STARTS_H_

#include <optional>
#include <set>

#include "src/experiment/iteration_range.h"
#include "src/experiment/side.h"

namespace ttrace {

// Iterations that an ungrafted candidate starts from other weights than the
// reference, because an optimizer step amplified rounding. `iterations`: those
// that are judged; nothing: all. Fails if a file cannot be read.
Result<std::set<int>> UnequalStarts(
    const Side& reference, const Side& candidate,
    const std::optional<IterationRange>& iterations);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_UNEQUAL_STARTS_H_
