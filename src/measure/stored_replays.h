// What ranks found when they made their own steps again, as notes of their
// traces: "replayed_step".
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_MEASURE_STORED_REPLAYS_H_
#define TTRACE_SRC_MEASURE_STORED_REPLAYS_H_

#include <string>

#include "src/step/replayed_step.h"
#include "src/trace/reader.h"

namespace ttrace {

inline constexpr char kReplayedStepNote[] = "replayed_step";

// The note of one parameter, as JSON.
std::string EncodeReplay(const StepOfParameter& step, const RankReplay& replay);

// Of all ranks. A note that cannot be read is as if it were not there: what
// values were not kept of is then not judged.
StoredReplays ReadStoredReplays(const Trace& trace);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_STORED_REPLAYS_H_
