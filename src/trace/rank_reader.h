// Reads what one rank wrote, except its tensors.

#ifndef TTRACE_SRC_TRACE_RANK_READER_H_
#define TTRACE_SRC_TRACE_RANK_READER_H_

#include <memory>
#include <string>

#include "src/trace/reader.h"
#include "src/trace/record_table.h"
#include "ttrace/status.h"

namespace ttrace {

struct RankContents {
  RankTrace trace;
  RecordTable records;  // by sequence
};

// Reads and validates meta.json and index.jsonl of `folder`, and that every
// record lies inside its segment. Errors name the file, and the line if there
// is one. Fails with kNotFound if there is no meta.json: then the rank died
// while it opened its trace.
//
// Thread safety: many threads may read folders.
Result<std::unique_ptr<RankContents>> ReadRank(const std::string& folder,
                                               int rank);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_RANK_READER_H_
