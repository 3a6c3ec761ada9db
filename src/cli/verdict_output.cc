#include "src/cli/verdict_output.h"

#include <cstdio>
#include <filesystem>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/terminal.h"
#include "src/report/render.h"
#include "src/run/free_space.h"
#include "src/run/record_command.h"
#include "src/trace/file.h"
#include "src/trace/segments/segment_pool.h"

namespace ttrace {

int CheckAndReport(CheckOptions options, const VerdictOutput& output) {
  ProgressLine progress;
  options.progress = [&](int64_t done, int64_t total) {
    progress.Show("comparing " + FormatCount(done) + " of " +
                  FormatCount(total) + " tensors");
  };
  // All commands have ended: nobody inherits it.
  RaiseOpenFileLimit();
  const Result<CheckResult> result = RunCheck(options);
  progress.Clear();
  if (result.ok()) {
    progress.Phase("compared " + FormatCount(result->coverage.compared) +
                   " tensors in " + FormatSeconds(result->seconds));
  }
  return Report(result, output);
}

int Report(const Result<CheckResult>& result, const VerdictOutput& output) {
  if (!result.ok()) return Complain(result.error());
  TerminalOptions terminal = StandardOutputOptions();
  terminal.verbose = output.verbose;
  std::fputs(RenderTerminal(*result, terminal).c_str(), stdout);
  std::fflush(stdout);
  if (!output.folder.empty()) {
    const std::filesystem::path at = output.folder;
    TerminalOptions plain;
    plain.verbose = true;
    for (const Status& written :
         {WriteFileAtomically((at / "result.json").string(),
                              RenderJson(*result)),
          WriteFileAtomically((at / "report.txt").string(),
                              RenderTerminal(*result, plain))}) {
      if (!written.ok()) {
        return Complain(written.error().message() +
                        FullDiskWords(output.folder));
      }
    }
  }
  const Status exported = WriteExports(output.exports, *result);
  if (!exported.ok()) return Complain(exported.error());
  return ExitCode(result->verdict);
}

}  // namespace ttrace
