// The optimizer steps of a run that are captured or judged.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_ITERATION_RANGE_H_
#define TTRACE_SRC_EXPERIMENT_ITERATION_RANGE_H_

#include <string>

#include "ttrace/status.h"

namespace ttrace {

struct IterationRange {  // half open
  int begin = 0;
  int end = 2;
  int count() const { return end - begin; }
  bool contains(int i) const { return begin <= i && i < end; }
};

// Parses "0:2". Fails with kInvalidArgument unless 0 <= begin < end.
Result<IterationRange> ParseIterations(const std::string& text);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ITERATION_RANGE_H_
