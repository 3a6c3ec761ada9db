// For tests: a record as lines of an index, and back.

#ifndef TTRACE_SRC_TRACE_TESTING_SCRATCH_LINES_H_
#define TTRACE_SRC_TRACE_TESTING_SCRATCH_LINES_H_

#include <string>
#include <string_view>

#include "src/trace/index/index_line.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace {

// Its spec, numbered 0, and the record.
inline std::string EncodeLines(const RecordFields& record) {
  std::string lines = OrDie(EncodeSpec({0, record.spec()}));
  lines += OrDie(EncodeRecordStart(record, 0));
  AppendExtent(record, lines);
  return lines;
}

// What the last line says, or what is wrong with the first that is wrong.
inline Result<IndexLine> DecodeLines(const RankMeta& meta,
                                     std::string_view text) {
  IndexLineDecoder decoder(meta);
  if (text.ends_with('\n')) text.remove_suffix(1);
  while (true) {
    const size_t end = text.find('\n');
    std::string line(text.substr(0, end));
    const size_t size = line.size();
    line.append(simdjson::SIMDJSON_PADDING, ' ');
    Result<IndexLine> decoded =
        decoder.DecodePadded(std::string_view(line).substr(0, size));
    if (!decoded.ok() || end == std::string_view::npos) return decoded;
    text.remove_prefix(end + 1);
  }
}

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_TESTING_SCRATCH_LINES_H_
