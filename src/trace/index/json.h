// What the trace's decoders share: JSON with a bounded depth, and fields of an
// object with their type and range checked.
//
// Errors are kCorrupt and say which field; callers add the file and the line.

#ifndef TTRACE_SRC_TRACE_INDEX_JSON_H_
#define TTRACE_SRC_TRACE_INDEX_JSON_H_

#include <simdjson.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

// Keeps its buffers between documents: one per thread, used for many.
class JsonParser {
 public:
  // The object that is all of text. It lives until the next call.
  // REQUIRES: SIMDJSON_PADDING readable bytes after `text`.
  Result<simdjson::dom::object> ParsePadded(std::string_view text);
  // The same from any text.
  Result<simdjson::dom::object> Parse(std::string_view text);

 private:
  simdjson::dom::parser parser_;
  size_t capacity_ = 0;
  std::string padded_;
};

// Access to one object's fields. Unknown keys are nobody's business.
class JsonFields {
 public:
  explicit JsonFields(simdjson::dom::object object) : object_(object) {}

  Result<int64_t> Int(std::string_view key, int64_t min,
                      int64_t max = std::numeric_limits<int64_t>::max()) const;
  // The same, within the range of int.
  Result<int> SmallInt(std::string_view key, int min,
                       int max = std::numeric_limits<int>::max()) const;
  Result<bool> Bool(std::string_view key) const;
  Result<std::string_view> Text(std::string_view key) const;
  // Integers, each at least `min`; at most `max_count` of them.
  Result<Shape> Ints(std::string_view key, int64_t min, size_t max_count) const;
  Result<simdjson::dom::array> Array(std::string_view key) const;
  Result<simdjson::dom::object> Object(std::string_view key) const;
  bool Has(std::string_view key) const;

 private:
  simdjson::dom::object object_;
};

Error BadField(std::string_view key, std::string_view problem);

// Checks "format" and "version", the first thing in manifest.json and
// meta.json. Fails with kUnsupported for a newer version.
Status CheckFormatVersion(const JsonFields& fields);

// `text` without white space, if it is a JSON object that our reader will
// accept. Fails with kInvalidArgument otherwise.
Result<std::string> CompactJsonObject(std::string_view text);

// As one JSON string with its quotes.
// REQUIRES: IsUtf8(text)
std::string QuoteJson(std::string_view text);
bool IsUtf8(std::string_view text);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INDEX_JSON_H_
