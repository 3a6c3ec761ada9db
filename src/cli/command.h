// What the subcommands share: how each adds itself to the command line.

#ifndef TTRACE_SRC_CLI_COMMAND_H_
#define TTRACE_SRC_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "ttrace/status.h"

namespace ttrace {

inline constexpr int kCouldNotDecide = 2;

// The subcommand that was chosen, ready to run. Returns the exit code.
using Action = std::function<int()>;

struct CommandLine {
  // What stands after "--": somebody else's command, which no option parser
  // may look at.
  std::vector<std::string> after_dashes;
  bool has_dashes = false;
  std::string python;  // by which this is called, for `ttrace version`
};

// Each adds its options to `app` and sets `*action` when it is chosen.
void AddRecord(CLI::App& app, const CommandLine& line, Action* action);
void AddCheck(CLI::App& app, Action* action);
void AddDiff(CLI::App& app, Action* action);
void AddRun(CLI::App& app, Action* action);
void AddMerge(CLI::App& app, Action* action);
void AddBaseline(CLI::App& app, const CommandLine& line, Action* action);
void AddReport(CLI::App& app, Action* action);
void AddInspect(CLI::App& app, Action* action);
void AddCompletion(CLI::App& app, Action* action);
void AddDoctor(CLI::App& app, Action* action);
void AddVersion(CLI::App& app, const CommandLine& line, Action* action);

// Prints "ttrace: <message>" to stderr. Returns kCouldNotDecide.
int Complain(const std::string& message);
int Complain(const Error& error);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_COMMAND_H_
