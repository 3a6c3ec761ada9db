#include "src/trace/index/json.h"

#include <algorithm>

#include "src/trace/format.h"

namespace ttrace {

// Below it simdjson reallocates by itself, and forgets our depth limit.
constexpr size_t kMinCapacity = 4096;

Error BadField(std::string_view key, std::string_view problem) {
  std::string message = "field '";
  message.append(key).append("' ").append(problem);
  return Error(ErrorCode::kCorrupt, std::move(message));
}

Result<simdjson::dom::object> JsonParser::ParsePadded(std::string_view text) {
  // A parser without capacity, which nothing gave it yet, cannot parse at all.
  if (text.empty()) return Error(ErrorCode::kCorrupt, "not JSON: empty");
  if (text.size() > capacity_) {
    const size_t wanted =
        std::max({text.size(), std::min(2 * capacity_, kMaxJsonFileBytes),
                  kMinCapacity});
    const simdjson::error_code error = parser_.allocate(wanted, kMaxJsonDepth);
    if (error != simdjson::SUCCESS) {
      return Error(ErrorCode::kCorrupt, simdjson::error_message(error));
    }
    capacity_ = wanted;
  }
  simdjson::dom::element element;
  const simdjson::error_code error =
      parser_.parse(text.data(), text.size(), /*realloc_if_needed=*/false)
          .get(element);
  if (error != simdjson::SUCCESS) {
    return Error(ErrorCode::kCorrupt,
                 std::string("not JSON: ") + simdjson::error_message(error));
  }
  simdjson::dom::object object;
  if (element.get(object) != simdjson::SUCCESS) {
    return Error(ErrorCode::kCorrupt, "not a JSON object");
  }
  return object;
}

Result<simdjson::dom::object> JsonParser::Parse(std::string_view text) {
  padded_.assign(text);
  padded_.append(simdjson::SIMDJSON_PADDING, '\0');
  return ParsePadded(std::string_view(padded_).substr(0, text.size()));
}

bool JsonFields::Has(std::string_view key) const {
  simdjson::dom::element element;
  return object_.at_key(key).get(element) == simdjson::SUCCESS;
}

Result<int64_t> JsonFields::Int(std::string_view key, int64_t min,
                                int64_t max) const {
  int64_t value = 0;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS) {
    return BadField(key, "is not a 64-bit integer, or missing");
  }
  if (value < min || value > max) {
    return BadField(key, "is out of range: " + std::to_string(value));
  }
  return value;
}

Result<int> JsonFields::SmallInt(std::string_view key, int min, int max) const {
  TTRACE_ASSIGN_OR_RETURN(const int64_t value, Int(key, min, max));
  return static_cast<int>(value);
}

Result<bool> JsonFields::Bool(std::string_view key) const {
  bool value = false;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS) {
    return BadField(key, "is not true or false, or missing");
  }
  return value;
}

Result<std::string_view> JsonFields::Text(std::string_view key) const {
  std::string_view value;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS) {
    return BadField(key, "is not a string, or missing");
  }
  return value;
}

Result<simdjson::dom::array> JsonFields::Array(std::string_view key) const {
  simdjson::dom::array value;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS) {
    return BadField(key, "is not an array, or missing");
  }
  return value;
}

Result<simdjson::dom::object> JsonFields::Object(std::string_view key) const {
  simdjson::dom::object value;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS) {
    return BadField(key, "is not an object, or missing");
  }
  return value;
}

Result<Shape> JsonFields::Ints(std::string_view key, int64_t min,
                               size_t max_count) const {
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::array array, Array(key));
  Shape values;
  for (const simdjson::dom::element element : array) {
    int64_t value = 0;
    if (element.get(value) != simdjson::SUCCESS || value < min) {
      return BadField(key, "has an element that is no integer in range");
    }
    if (values.size() == max_count) return BadField(key, "is too long");
    values.push_back(value);
  }
  return values;
}

Status CheckFormatVersion(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const std::string_view format, fields.Text("format"));
  if (format != kFormatName) return BadField("format", "is not 'ttrace'");
  TTRACE_ASSIGN_OR_RETURN(const int64_t version, fields.Int("version", 1));
  if (version > kFormatVersion) {
    return Error(ErrorCode::kUnsupported, "format version " +
                                              std::to_string(version) +
                                              "; this ttrace reads up to " +
                                              std::to_string(kFormatVersion));
  }
  return Done{};
}

Result<std::string> CompactJsonObject(std::string_view text) {
  if (text.size() > kMaxJsonFileBytes) {
    return Error(ErrorCode::kInvalidArgument,
                 "a JSON text of " + std::to_string(text.size()) + " bytes");
  }
  JsonParser parser;
  const Result<simdjson::dom::object> object = parser.Parse(text);
  if (!object.ok()) {
    return Error(ErrorCode::kInvalidArgument, object.error().message());
  }
  return std::string(simdjson::minify(*object));
}

bool IsUtf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

std::string QuoteJson(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted.append({'\\', c});
    } else if (byte < 0x20) {
      quoted.append("\\u00").append({kHex[byte >> 4], kHex[byte & 15]});
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  return quoted;
}

}  // namespace ttrace
