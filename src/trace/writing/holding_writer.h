// A writer that can set records aside (TraceWriter::Hold).
//
// Thread safety: as TraceWriter.

#ifndef TTRACE_SRC_TRACE_WRITING_HOLDING_WRITER_H_
#define TTRACE_SRC_TRACE_WRITING_HOLDING_WRITER_H_

#include <memory>
#include <string>

#include "src/trace/writer.h"

namespace ttrace {

// Hands everything on to `writer`, and what it was told to hold later. What is
// held lies in a file without a name in `folder`. After a fork the child's copy
// holds nothing.
std::unique_ptr<TraceWriter> HoldRecords(std::unique_ptr<TraceWriter> writer,
                                         std::string folder);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITING_HOLDING_WRITER_H_
