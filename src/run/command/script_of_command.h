// Which script or module a program is given to run: by `python`, by a launcher
// of ranks, or by something that starts one of these.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_RUN_COMMAND_SCRIPT_OF_COMMAND_H_
#define TTRACE_SRC_RUN_COMMAND_SCRIPT_OF_COMMAND_H_

#include <string>
#include <vector>

#include "src/run/command/simple_commands.h"

namespace ttrace {

struct GivenScript {
  std::string file;  // as the command names it; "": none, or not literally
  // Names, one of which is the module: where options take values, which of the
  // words behind them is it is not known.
  std::vector<std::string> modules;
  bool is_text = false;  // python -c
  // It is what Python itself or torchrun is given, where the command runs.
  bool is_direct = false;
};
GivenScript ScriptOf(const SimpleCommand& command);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_COMMAND_SCRIPT_OF_COMMAND_H_
