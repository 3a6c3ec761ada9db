// `ttrace version`: what a bug report has to say.

#include "ttrace/version.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "src/cli/command.h"
#include "src/numeric/instruction_set.h"
#include "src/trace/format.h"
#include "ttrace/built_with.h"

namespace ttrace {
namespace {

std::string VersionWords(const std::string& python) {
  return fmt::format(
      "ttrace {} (trace format {}, {})\n"
      "compiler   {}, for {}\n"
      "libraries  {}\n"
      "Python     {}\n",
      kVersion, kFormatVersion, InstructionSet(), kCompiler, kTarget,
      kLibraries, python);
}

}  // namespace

void AddVersion(CLI::App& app, const CommandLine& line, Action* action) {
  CLI::App* command = app.add_subcommand(
      "version",
      "Print the version, the trace format, the instruction set and what this "
      "was built with.");
  command->footer(
      "\nTTRACE_INSTRUCTION_SET=SSE4 in the environment of any command limits "
      "the\ninstruction set; a name that this machine lacks is refused with "
      "those that it has.\n\nExamples:\n  ttrace version");
  command->callback([&line, action] {
    *action = [&line] {
      std::fputs(VersionWords(line.python).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace ttrace
