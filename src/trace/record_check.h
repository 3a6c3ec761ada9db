// The rules that a record obeys, whoever made it: the writer asks before it
// writes, the reader before it believes.

#ifndef TTRACE_SRC_TRACE_RECORD_CHECK_H_
#define TTRACE_SRC_TRACE_RECORD_CHECK_H_

#include "src/trace/record.h"
#include "src/trace/writer.h"
#include "ttrace/status.h"

namespace ttrace {

// Resolves record.layout from `global_shape` and sets record.extent.bytes from
// dtype and shape. Fails with kInvalidArgument if anything in the record
// contradicts the mesh, the shapes or the range of its fields.
Status CompleteRecord(const RankMeta& meta, const Shape& global_shape,
                      Record& record);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_RECORD_CHECK_H_
