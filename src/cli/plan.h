// What `diff` says of its cost: in steps before it starts, in bytes and memory
// before the first rerun.
//
// Thread safety: reads the file system only.

#ifndef TTRACE_SRC_CLI_PLAN_H_
#define TTRACE_SRC_CLI_PLAN_H_

#include <string>
#include <vector>

#include "src/experiment/iteration_range.h"
#include "src/run/capture_cost.h"
#include "ttrace/leg.h"

namespace ttrace {

// "2 iterations x (1 + 6 legs) = 14 steps; in bf16 or fp16 28, of which 14 in
// fp32". Legs as ExpandLegs gives them. A run that trains in fp32 has no legs
// in fp32 besides.
std::string StepsWords(const IterationRange& iterations,
                       const std::vector<Leg>& legs);

// "1.2 MB an iteration on 1 rank, with 6 reruns of each about 17 MB in all (59
// GB free); a rerun takes at most 12 MB more memory on a rank (11 GB free)".
// `folder`: where the trace is written.
std::string CostWords(const CaptureCost& cost, const std::string& folder);

// What to do about a trace that will not fit, or "" where it will.
std::string TooLargeWords(const CaptureCost& cost, const std::string& folder);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_PLAN_H_
