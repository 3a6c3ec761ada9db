// The result of a check, as `check`, `diff` and `merge` all give it: the report
// on standard output, result.json, report.txt and index.html in a folder.

#ifndef TTRACE_SRC_CLI_VERDICT_OUTPUT_H_
#define TTRACE_SRC_CLI_VERDICT_OUTPUT_H_

#include <string>

#include "src/check/check.h"

namespace ttrace {

// Runs the check, with progress while it lasts, prints and writes its result.
// `folder` may be empty: nothing is written. Returns the exit code.
int CheckAndReport(CheckOptions options, const std::string& folder,
                   bool verbose);

// Prints and writes a result. Returns the exit code.
int Report(const Result<CheckResult>& result, const std::string& folder,
           bool verbose);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_VERDICT_OUTPUT_H_
