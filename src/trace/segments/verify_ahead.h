// VerifyAhead: compares the small tensors that lie behind one another in a
// segment with their checksums, all with one read: whoever wants one of them
// mostly wants the others, and a read of a few bytes each costs more than
// anything that is done with them.
//
// Thread safety: many threads may call it, also for one record.

#ifndef TTRACE_SRC_TRACE_SEGMENTS_VERIFY_AHEAD_H_
#define TTRACE_SRC_TRACE_SEGMENTS_VERIFY_AHEAD_H_

#include <cstddef>
#include <cstdint>

#include "src/trace/file.h"
#include "src/trace/record_table.h"
#include "src/trace/segments/verified_records.h"

namespace ttrace {

// Larger tensors are worth a read of their own.
inline constexpr int64_t kMaxVerifiedAheadBytes = 4096;

// Looks at record `number` and the next ones in `file`. Those that are not what
// was written are still to be verified when somebody wants them, and wrong only
// then.
// REQUIRES: `file` is the segment of that record, which has its own bytes.
void VerifyAhead(const File& file, const RecordTable& records, size_t number,
                 VerifiedRecords* verified);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_SEGMENTS_VERIFY_AHEAD_H_
