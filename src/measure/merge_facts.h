// Facts about parts of one tensor, made apart, as facts about all of it.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_MEASURE_MERGE_FACTS_H_
#define TTRACE_SRC_MEASURE_MERGE_FACTS_H_

#include <vector>

#include "src/measure/facts.h"
#include "ttrace/status.h"

namespace ttrace {

// Each part was measured from some of the candidate's pieces and all of the
// reference's, by the same plans. The order of parts does not matter. What a
// part could not compare stays a gap of the whole.
//
// Copies that different parts hold are compared with the reference, not with
// each other: ReplicaComparison is of those that one part held together.
//
// Fails with kInvalidArgument if the parts are not of one tensor or have other
// noise legs, with kIncomparable if their regions overlap without being equal.
Result<TensorFacts> MergeFacts(const std::vector<TensorFacts>& parts);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_MERGE_FACTS_H_
