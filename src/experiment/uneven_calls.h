// Modules that are called more often in one micro-batch than in another: a cell
// of a recurrent network, once a step of the longest row that a rank has.
//
// Calls are numbered as they come. Where their number depends on the lengths of
// rows, the same number may be another call: the fifth is one of the source in
// one micro-batch, the first of the target in another.
//
// Thread safety: pure.

#ifndef TTRACE_SRC_EXPERIMENT_UNEVEN_CALLS_H_
#define TTRACE_SRC_EXPERIMENT_UNEVEN_CALLS_H_

#include <set>
#include <string>
#include <utility>

#include "src/experiment/side.h"

namespace ttrace {

using ModuleOfIteration = std::pair<std::string, int>;  // (fqn, iteration)

// Of both runs together.
std::set<ModuleOfIteration> UnevenCalls(const Side& reference,
                                        const Side& candidate);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_UNEVEN_CALLS_H_
