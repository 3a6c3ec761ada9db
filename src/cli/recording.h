// What `record` and `diff` share: finding capture's hook, running the launches
// of one side, and saying what came of them.

#ifndef TTRACE_SRC_CLI_RECORDING_H_
#define TTRACE_SRC_CLI_RECORDING_H_

#include <string>
#include <vector>

#include "src/run/record_command.h"
#include "ttrace/status.h"

namespace ttrace {

// Fills in the environment and the folder of capture's import hook, which the
// console script names in TTRACE_HOOK_DIR. Fails with kNotFound without it.
Status UseOwnEnvironment(RecordOptions* options);

// Fails with kInvalidArgument unless `what` is weights,data | weights | data |
// none.
Status CheckGraft(const std::string& what);

// After a run in which no rank could replay: launches the command once more
// for each leg, each into a folder of its own (LegFolder), with weights and
// data of the run before. Says so on stderr. Legs that fail are reported and
// left out; an interrupt ends the rest.
void RunLegLaunches(const RecordOptions& real, const CaptureSummary& summary,
                    const InterruptFlag& interrupt);

// Prints the last lines of a command's log to stderr.
void PrintLogTail(const std::string& log_file);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_RECORDING_H_
