// What the reruns of a captured iteration will take. Ranks say it before the
// first one, in messages.jsonl; written by python/ttrace/capture/cost.py.

#ifndef TTRACE_SRC_RUN_CAPTURE_COST_H_
#define TTRACE_SRC_RUN_CAPTURE_COST_H_

#include <cstdint>
#include <string>

#include "src/experiment/iteration_range.h"

namespace ttrace {

struct CaptureCost {
  int ranks = 0;           // that have said what it takes
  int legs = 0;            // reruns of an iteration, the most on any rank
  int fp32_legs = 0;       // of these
  double real_bytes = 0;   // of one iteration as it was, over all ranks
  double trace_bytes = 0;  // of all iterations and their reruns
  double memory = 0;       // that a rerun takes on one rank at most, above
                           // what training itself holds; bytes
  double free_memory = 0;  // of the rank that has least
};

// What the ranks of `trace_folder` have said so far. A rank that was restarted
// counts once. What is unreadable is passed over.
//
// Thread safety: reads the file system only.
CaptureCost ReadCaptureCost(const std::string& trace_folder,
                            const IterationRange& iterations);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_CAPTURE_COST_H_
