// The check, as `check` and `diff` both run it: progress while it lasts, the
// report on standard output, result.json and report.txt in a folder.

#ifndef TTRACE_SRC_CLI_VERDICT_OUTPUT_H_
#define TTRACE_SRC_CLI_VERDICT_OUTPUT_H_

#include <string>

#include "src/check/check.h"

namespace ttrace {

// Runs the check, prints and writes its result. `folder` may be empty: nothing
// is written. Returns the exit code.
int CheckAndReport(CheckOptions options, const std::string& folder,
                   bool verbose);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_VERDICT_OUTPUT_H_
