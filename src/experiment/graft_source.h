// Whose values a run was given in place of its own.
//
// Modules that were given the values of one reference do not compute what
// another one computed: two recordings of one run, on other hardware or by
// other kernels, differ by round-off all along, an isolated module by its own
// alone.
//
// Thread safety: pure functions of const inputs.

#ifndef TTRACE_SRC_EXPERIMENT_GRAFT_SOURCE_H_
#define TTRACE_SRC_EXPERIMENT_GRAFT_SOURCE_H_

#include <string>
#include <vector>

#include "src/experiment/side.h"
#include "src/trace/reader.h"

namespace ttrace {

// Whether a candidate can be given the values of this trace, or summaries of
// some were kept alone.
bool HandsOutValues(const Trace& trace);

// Of all values that such a trace hands out: those of its legs "real" and
// "fp32", by name and checksum, in whatever order and folders they lie. 16
// hexadecimal digits. Of a trace that was condensed: that of what it was made
// of. Reads no tensor.
std::string DigestOfGraftSource(const std::vector<const Trace*>& traces);

// Whether `candidate` says that its values are those of another trace than
// `reference`. Traces from before they said so do not.
bool GraftedFromAnother(const Side& candidate, const Side& reference);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_GRAFT_SOURCE_H_
