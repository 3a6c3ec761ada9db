// The check: two traces in, a CheckResult out. Prints nothing.

#ifndef TTRACE_SRC_CHECK_CHECK_H_
#define TTRACE_SRC_CHECK_CHECK_H_

#include "src/check/check_options.h"
#include "src/check/open_runs.h"
#include "src/measure/measurements.h"
#include "src/report/check_result.h"
#include "ttrace/status.h"

namespace ttrace {

// Fails with the Error of Trace::Open if a trace cannot be read, and with
// kNotFound if a side has none of the iterations asked for. Everything that can
// be said about readable traces is in the result.
Result<CheckResult> RunCheck(const CheckOptions& options);

// The second half of it: judges what was measured of all of `runs`, places and
// explains it. Reads what explanations need, which is little. All but
// CheckResult::seconds is a function of what is given.
Result<CheckResult> JudgeAndExplain(const CheckOptions& options,
                                    const OpenRuns& runs,
                                    Measurements measured);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_CHECK_H_
