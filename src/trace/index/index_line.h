// The lines of index.jsonl: one compact JSON object each.
//
// Thread safety: functions are pure; a decoder is for one thread.

#ifndef TTRACE_SRC_TRACE_INDEX_INDEX_LINE_H_
#define TTRACE_SRC_TRACE_INDEX_INDEX_LINE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/trace/index/json.h"
#include "src/trace/index/known_specs.h"
#include "src/trace/index/record_check.h"
#include "src/trace/record_fields.h"
#include "src/trace/writer.h"
#include "ttrace/leg.h"
#include "ttrace/status.h"

namespace ttrace {

// What records refer to, instead of saying it each. A rank's are numbered from
// 0 in their order.
struct SpecLine {
  int64_t number = 0;
  RecordSpec spec;
};
struct NoteLine {
  std::string kind;
  std::string json;  // an object, compact
};
struct SealLine {
  int iteration = 0;
  Leg leg;
};
struct EndLine {
  bool complete = false;
  std::string reason;
};
using IndexLine =
    std::variant<RecordFields, SpecLine, NoteLine, SealLine, EndLine>;

// A record's line is written in two steps, because whether its names can be
// written has to be known before its bytes are, and where the bytes lie after.
//
// The line up to the extent, of an occurrence of `spec`. Fails with
// kInvalidArgument if a name is not UTF-8 or the line would be too long for a
// reader.
Result<std::string> EncodeRecordStart(const RecordFields& record, int64_t spec);
// Completes it, with what `record` knows now of its bytes, '\n' included.
void AppendExtent(const RecordFields& record, std::string& line);

// Whole lines, '\n' included. They fail as EncodeRecordStart does, and for a
// note that is not an object.
Result<std::string> EncodeSpec(const SpecLine& spec);
Result<std::string> EncodeNote(const NoteLine& note);
Result<std::string> EncodeSeal(const SealLine& seal);
Result<std::string> EncodeEnd(const EndLine& end);

class IndexLineDecoder {
 public:
  // `meta` gives the mesh and coordinate in which placements are resolved.
  explicit IndexLineDecoder(const RankMeta& meta) : meta_(meta) {}

  // Decodes and validates a line without its '\n', and keeps specs in mind for
  // the records after them. What remains for the caller
  // to check is the order of sequence numbers and that the file is long enough.
  // REQUIRES: simdjson::SIMDJSON_PADDING readable bytes after `line`.
  Result<IndexLine> DecodePadded(std::string_view line);

  // Specs so far.
  KnownSpecs& specs() { return specs_; }

 private:
  Result<IndexLine> DecodeSpec(const JsonFields& fields);
  Result<IndexLine> DecodeRecord(const JsonFields& fields) const;
  Result<RecordFields> DecodeOccurrence(const JsonFields& fields) const;
  // Of formats 1 to 3, where each record says all of itself.
  Result<RecordFields> DecodeWhole(const JsonFields& fields) const;

  const RankMeta& meta_;
  JsonParser parser_;
  KnownSpecs specs_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INDEX_INDEX_LINE_H_
