// Reads what one rank wrote, except its tensors.

#ifndef TTRACE_SRC_TRACE_RANK_READER_H_
#define TTRACE_SRC_TRACE_RANK_READER_H_

#include <string>
#include <vector>

#include "src/trace/reader.h"
#include "src/trace/record.h"
#include "ttrace/status.h"

namespace ttrace {

struct RankContents {
  RankTrace trace;
  std::vector<Record> records;  // by sequence
};

// Reads and validates meta.json and index.jsonl of `folder`, and that every
// record lies inside its segment. Errors name the file, and the line if there
// is one. Fails with kNotFound if there is no meta.json: then the rank died
// while it opened its trace.
Result<RankContents> ReadRank(const std::string& folder, int rank);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_RANK_READER_H_
