#include "src/cli/verdict_output.h"

#include <cstdio>
#include <filesystem>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/terminal.h"
#include "src/report/html/html.h"
#include "src/report/render.h"
#include "src/report/result_file.h"
#include "src/run/free_space.h"
#include "src/run/record_command.h"
#include "src/trace/file.h"
#include "src/trace/segments/segment_pool.h"

namespace ttrace {

int CheckAndReport(CheckOptions options, const std::string& folder,
                   bool verbose) {
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
    const std::string json = RenderJson(*result);
    const auto write = [&](const char* name, const std::string& text) {
      return WriteFileAtomically((at / name).string(), text);
    };
    for (const Status& written :
         {write("result.json", json),
          write("report.txt", RenderTerminal(*result, plain))}) {
      if (!written.ok()) {
        return Complain(written.error().message() + FullDiskWords(folder));
      }
    }
    // By way of the file, as `ttrace report` makes it later.
    const auto read = ParseResult(json);
    if (!read.ok()) return Complain(read.error());
    const Status page = write("index.html", RenderHtml(*read));
    if (!page.ok()) {
      return Complain(page.error().message() + FullDiskWords(folder));
    }
  }
  return ExitCode(result->verdict);
}

}  // namespace ttrace
