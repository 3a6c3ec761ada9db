// What `record` and `diff` share: finding capture's hook, running the launches
// of one side, and saying what came of them.

#ifndef TTRACE_SRC_CLI_RECORDING_H_
#define TTRACE_SRC_CLI_RECORDING_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "src/cli/progress.h"
#include "src/run/record_command.h"
#include "ttrace/status.h"

namespace ttrace {

// Fills in the environment and the folder of capture's import hook, which the
// console script names in TTRACE_HOOK_DIR. Fails with kNotFound without it.
Status UseOwnEnvironment(RecordOptions* options);

// Of an environment: the value that it has from here on.
void SetVariable(const std::string& name, const std::string& value,
                 std::vector<std::string>* environment);

// Fails with kInvalidArgument unless `what` is weights,data | weights | data |
// none.
Status CheckGraft(const std::string& what);

// After a run in which no rank could replay: launches the command once more
// for each leg, each into a folder of its own (LegFolder), with weights and
// data of the run before. Says so on stderr. Legs that fail are reported and
// left out; an interrupt ends the rest. `side`: ProgressTask::side.
void RunLegLaunches(const RecordOptions& real, const CaptureSummary& summary,
                    const std::string& side, const InterruptFlag& interrupt);

// RecordCommand, and how far it is meanwhile.
Result<RecordOutcome> RecordWithProgress(RecordOptions run,
                                         const ProgressTask& task);

// --timeout and --stall-notice, as typed.
struct WatchOptions {
  std::string timeout = "0";
  std::string stall_notice = "60s";
};
void AddWatchOptions(CLI::App* command, WatchOptions* options);

// Fills in the seconds, and that notices go to stderr as "ttrace: <who>...".
// Fails with kInvalidArgument for what is no duration.
Status SetWatch(const WatchOptions& options, const std::string& who,
                RecordOptions* run);

// Says on stderr if processes of an earlier run outlived their ttrace.
void WarnOfOrphans();

// Says on stderr what of a run did not end with its command.
void ReportSurvivors(const std::string& who, const LaunchOutcome& launch);

// Prints the last lines of a command's output to stderr, and why its log lacks
// some of it.
void PrintLogTail(const std::string& log_file, const LaunchOutcome& launch);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_RECORDING_H_
