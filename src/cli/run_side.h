// One side of a comparison: its command with capture, then the reruns that take
// launches of their own, and what is said of how they ended.

#ifndef TTRACE_SRC_CLI_RUN_SIDE_H_
#define TTRACE_SRC_CLI_RUN_SIDE_H_

#include <cstdint>
#include <string>

#include "src/cli/interrupt.h"
#include "src/run/record_command.h"

namespace ttrace {

// What one side came to.
enum class SideEnd : uint8_t {
  kGood,
  kFailed,
  kRefused,
  kUnusable,
  kInterrupted
};

struct SideOutcome {
  SideEnd end = SideEnd::kGood;
  std::string problem;  // why it is not good, in a line; empty if it is
};

// Runs the command and, where needed, its legs, into run.folder, which is made.
// `replace`: what ttrace wrote there before.
SideOutcome RunSide(const std::string& side, RecordOptions run, bool replace,
                    const InterruptGuard& guard);

// Runs the candidate's own first step (FirstStepOf) and looks at what it left,
// which is removed if there is nothing that cannot be judged.
SideOutcome RunFirstStep(const RecordOptions& run);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_RUN_SIDE_H_
