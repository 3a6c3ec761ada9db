// `ttrace version`: what a bug report has to say.

#include "ttrace/version.h"

#include <cstdio>

#include "src/cli/command.h"
#include "src/numeric/instruction_set.h"
#include "src/trace/format.h"

namespace ttrace {

void AddVersion(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "version",
      "Print the version, the trace format and the instruction set.");
  command->footer(
      "\nTTRACE_INSTRUCTION_SET=SSE4 in the environment of any command limits "
      "the\ninstruction set; a name that this machine lacks is refused with "
      "those that it has.\n\nExamples:\n  ttrace version");
  command->callback([action] {
    *action = [] {
      std::printf("ttrace %.*s (trace format %d, %s)\n",
                  static_cast<int>(kVersion.size()), kVersion.data(),
                  kFormatVersion, InstructionSet().c_str());
      return 0;
    };
  });
}

}  // namespace ttrace
