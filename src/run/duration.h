// "90", "90s", "10m", "1.5h": a duration as one types it.

#ifndef TTRACE_SRC_RUN_DURATION_H_
#define TTRACE_SRC_RUN_DURATION_H_

#include <string>

#include "ttrace/status.h"

namespace ttrace {

// Seconds. Fails with kInvalidArgument unless `text` is a number of at least 0
// with at most one of the units s, m, h, d.
Result<double> ParseDuration(const std::string& text);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_DURATION_H_
