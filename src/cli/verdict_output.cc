#include "src/cli/verdict_output.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/live_line.h"
#include "src/cli/progress.h"
#include "src/cli/terminal.h"
#include "src/report/render.h"
#include "src/run/free_space.h"
#include "src/run/record_command.h"
#include "src/trace/file.h"
#include "src/trace/segments/segment_pool.h"

namespace ttrace {

int CheckAndReport(CheckOptions options, const std::string& folder,
                   bool verbose) {
  std::optional<CheckWatch> watch(std::in_place,
                                  ProgressTask{.side = "", .phase = "compare"});
  options.progress = watch->measured();
  // All commands have ended: nobody inherits it.
  RaiseOpenFileLimit();
  const Result<CheckResult> result = RunCheck(options);
  watch.reset();
  // On a terminal the report says it.
  if (result.ok() && isatty(STDERR_FILENO) == 0) {
    SayAside("compared " + FormatCount(result->coverage.compared) +
             " tensors in " + FormatSeconds(result->seconds));
  }
  return Report(result, folder, verbose);
}

int Report(const Result<CheckResult>& result, const std::string& folder,
           bool verbose) {
  if (!result.ok()) return Complain(result.error());
  TerminalOptions terminal = StandardOutputOptions();
  terminal.verbose = verbose;
  std::fputs(RenderTerminal(*result, terminal).c_str(), stdout);
  std::fflush(stdout);
  if (!folder.empty()) {
    const std::filesystem::path at = folder;
    TerminalOptions plain;
    plain.verbose = true;
    for (const Status& written :
         {WriteFileAtomically((at / "result.json").string(),
                              RenderJson(*result)),
          WriteFileAtomically((at / "report.txt").string(),
                              RenderTerminal(*result, plain))}) {
      if (!written.ok()) {
        return Complain(written.error().message() + FullDiskWords(folder));
      }
    }
  }
  return ExitCode(result->verdict);
}

}  // namespace ttrace
