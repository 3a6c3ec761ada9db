// From the notes that ranks left in a trace to RunNotes: what many ranks, legs
// or iterations say alike is said once, and counts are of things, not of ranks.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_EXPERIMENT_GATHER_NOTES_H_
#define TTRACE_SRC_EXPERIMENT_GATHER_NOTES_H_

#include <vector>

#include "src/experiment/run_note.h"
#include "src/trace/reader.h"

namespace ttrace {

std::vector<RunNote> GatherNotes(const Trace& trace);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_GATHER_NOTES_H_
