// The command `ttrace`. The only part of the library that prints, reads
// environment variables and installs signal handlers.

#ifndef TTRACE_SRC_CLI_RUN_H_
#define TTRACE_SRC_CLI_RUN_H_

#include <string_view>

namespace ttrace {

// Runs a command line. `python` is what `ttrace version` says of the Python
// that this is called by. Returns the exit code: as diff(1), 0 within bounds,
// 1 diverged, 2 could not decide (and every misuse); for `record` that of the
// recorded command. Never exits the process and never throws.
int RunCli(int argc, char** argv, std::string_view python = "none");

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_RUN_H_
