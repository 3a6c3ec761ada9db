// Iterations that cannot be compared as experiments of their own.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_UNEQUAL_STARTS_H_
#define TTRACE_SRC_EXPERIMENT_UNEQUAL_STARTS_H_

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "src/experiment/iteration_range.h"
#include "src/experiment/side.h"

namespace ttrace {

// Parameters of both sides after the step of one iteration: the reference's,
// the candidate's.
using UpdatedParameters =
    std::vector<std::pair<const TensorPieces*, const TensorPieces*>>;

// By iteration, where an ungrafted candidate's next one that is judged starts
// from them. Those that recording starts from are of the iteration before it,
// unless that is the first of all. `iterations`: those that are judged;
// nothing: all.
std::map<int, UpdatedParameters> UpdatesThatMatter(
    const Side& reference, const Side& candidate,
    const std::optional<IterationRange>& iterations);

// Whether a parameter differs in any bit. Reads no further than the first that
// does. Fails if the operating system does not give the bytes.
Result<bool> AnyDiffers(const UpdatedParameters& parameters);

// Iterations that start from other weights than the reference's, because an
// optimizer step amplified rounding. `unequal_updates`: those whose updated
// parameters differ.
std::set<int> UnequalStarts(const Side& candidate,
                            const std::set<int>& unequal_updates);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_UNEQUAL_STARTS_H_
