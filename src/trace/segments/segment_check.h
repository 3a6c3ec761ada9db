// Whether the segments of a rank are those that its index speaks of.

#ifndef TTRACE_SRC_TRACE_SEGMENTS_SEGMENT_CHECK_H_
#define TTRACE_SRC_TRACE_SEGMENTS_SEGMENT_CHECK_H_

#include <string>
#include <vector>

#include "src/trace/record_table.h"
#include "ttrace/status.h"

namespace ttrace {

// Compares the header of every segment of a rank that closed its trace with its
// records: same tensors, types, shapes and places, and no bytes besides. Reads
// headers only, less than one percent of a full segment.
// Fails with kCorrupt for a segment that is missing, was not sealed, or belongs
// to another index.
// REQUIRES: records are sorted by sequence.
Status CheckSegments(const std::string& rank_folder,
                     const RecordTable& records);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_SEGMENTS_SEGMENT_CHECK_H_
