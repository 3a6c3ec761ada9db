// `ttrace version`: what a bug report has to say.

#include "ttrace/version.h"

#include <cstdio>

#include "src/cli/command.h"
#include "src/trace/format.h"

namespace ttrace {

void AddVersion(CLI::App& app, Action* action) {
  CLI::App* command =
      app.add_subcommand("version", "Print the version and the trace format.");
  command->footer("\nExamples:\n  ttrace version");
  command->callback([action] {
    *action = [] {
      std::printf("ttrace %.*s (trace format %d)\n",
                  static_cast<int>(kVersion.size()), kVersion.data(),
                  kFormatVersion);
      return 0;
    };
  });
}

}  // namespace ttrace
