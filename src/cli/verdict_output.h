// The result of a check, as `check`, `diff` and `merge` all give it: the report
// on standard output, result.json, report.txt and index.html in a folder.

#ifndef TTRACE_SRC_CLI_VERDICT_OUTPUT_H_
#define TTRACE_SRC_CLI_VERDICT_OUTPUT_H_

#include <string>

#include "src/check/check.h"
#include "src/cli/export_options.h"

namespace ttrace {

struct VerdictOutput {
  std::string folder;  // empty: nothing is written to one
  bool verbose = false;
  ExportOptions exports;
  // How a run broke down that was compared all the same, in a line: within
  // bounds is then not said of it, and what is missing is laid to it. Empty:
  // none did.
  std::string broke = {};
};

// Runs the check, with progress while it lasts, prints and writes its result;
// of traces that cannot be read, writes that nothing was compared. Returns the
// exit code.
int CheckAndReport(CheckOptions options, const VerdictOutput& output);

// Prints and writes that nothing was compared, for a reason of one line, so
// that whoever reads results finds one. Returns the exit code.
int ReportUndecided(const std::string& reason, const VerdictOutput& output);

// The same where the reason was said already: prints no verdict.
void WriteUndecided(const std::string& reason, const VerdictOutput& output);

// Prints and writes a result. Returns the exit code.
int Report(const Result<CheckResult>& result, const VerdictOutput& output);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_VERDICT_OUTPUT_H_
