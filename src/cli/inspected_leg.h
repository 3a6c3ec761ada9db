// Where the leg lies that `ttrace inspect --leg` asks for.

#ifndef TTRACE_SRC_CLI_INSPECTED_LEG_H_
#define TTRACE_SRC_CLI_INSPECTED_LEG_H_

#include <memory>

#include "src/trace/reader.h"
#include "ttrace/leg.h"
#include "ttrace/status.h"

namespace ttrace {

// Whether records of it are in the trace's own folder.
bool HoldsLeg(const Trace& trace, const Leg& leg);

// The trace of a leg that took a launch of its own. Fails with kNotFound if
// there is none: with what it may be that was meant, why it was not run, or how
// it is recorded.
Result<std::shared_ptr<const Trace>> OpenLegOf(const Trace& trace,
                                               const Leg& leg);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_INSPECTED_LEG_H_
