#include "src/trace/segments/safetensors_header.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "src/trace/format.h"
#include "src/trace/index/json.h"

namespace ttrace {
namespace {

constexpr size_t kLengthBytes = 8;

// The length of a header that takes all the room there is.
std::string LengthBytes() {
  const uint64_t length =
      static_cast<uint64_t>(kSegmentHeaderBytes) - kLengthBytes;
  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes += static_cast<char>((length >> (8 * i)) & 0xff);
  }
  return bytes;
}

// Bytes of a tensor, or nothing if they overflow.
std::optional<int64_t> SizeInBytes(DType dtype, const Shape& shape) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t bytes = Info(dtype).itemsize;
  for (const int64_t size : shape) {
    if (size == 0) return 0;
  }
  for (const int64_t size : shape) {
    if (bytes > kMax / size) return std::nullopt;
    bytes *= size;
  }
  return bytes;
}

// Only the canonical spelling, so that no two names mean one record.
std::optional<int64_t> ParseSequence(std::string_view name) {
  int64_t value = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, value);
  if (error != std::errc() || rest != end || std::to_string(value) != name) {
    return std::nullopt;
  }
  return value < 0 ? std::nullopt : std::optional<int64_t>(value);
}

Result<SafetensorsEntry> DecodeEntry(std::string_view name,
                                     simdjson::dom::element value) {
  SafetensorsEntry entry;
  const std::optional<int64_t> sequence = ParseSequence(name);
  if (!sequence) return Corrupt("not a sequence number");
  entry.sequence = *sequence;

  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return Corrupt("not an object");
  const JsonFields fields(object);
  TTRACE_ASSIGN_OR_RETURN(const std::string_view dtype, fields.Text("dtype"));
  const std::optional<DType> parsed = ParseDType(dtype);
  if (!parsed || Info(*parsed).safetensors_name != dtype) {
    return BadField("dtype", "is unknown: " + Abridged(dtype));
  }
  entry.dtype = *parsed;
  TTRACE_ASSIGN_OR_RETURN(entry.shape, fields.Ints("shape", 0, 64));
  TTRACE_ASSIGN_OR_RETURN(const Shape place, fields.Ints("data_offsets", 0, 2));
  const std::optional<int64_t> bytes = SizeInBytes(entry.dtype, entry.shape);
  if (place.size() != 2 || place[1] < place[0] || !bytes ||
      place[1] - place[0] != *bytes) {
    return BadField("data_offsets", "does not fit dtype and shape");
  }
  entry.begin = place[0];
  entry.end = place[1];
  return entry;
}

}  // namespace

bool SafetensorsHeader::Add(const SafetensorsEntry& entry) {
  // All that is not of a dimension, and a dimension with its comma.
  constexpr size_t kMostBytes = 160;
  constexpr size_t kMostDigits = 20;  // of any int64_t
  const size_t before = entries_.size();
  entries_.resize(before + kMostBytes + (kMostDigits + 1) * entry.shape.size());
  char* at = entries_.data() + before;
  const auto add = [&](std::string_view text) {
    at = std::copy(text.begin(), text.end(), at);
  };
  const auto add_number = [&](int64_t value) {
    at = std::to_chars(at, at + kMostDigits, value).ptr;
  };
  add(before == 0 ? "\"" : ",\"");
  add_number(entry.sequence);
  add("\":{\"dtype\":\"");
  add(Info(entry.dtype).safetensors_name);
  add("\",\"shape\":[");
  for (size_t d = 0; d < entry.shape.size(); ++d) {
    if (d > 0) add(",");
    add_number(entry.shape[d]);
  }
  add("],\"data_offsets\":[");
  add_number(entry.begin);
  add(",");
  add_number(entry.end);
  add("]}");
  entries_.resize(static_cast<size_t>(at - entries_.data()));

  const size_t braces = 2;
  const size_t room = static_cast<size_t>(kSegmentHeaderBytes) - kLengthBytes;
  if (entries_.size() + braces <= room) return true;
  entries_.resize(before);
  return false;
}

std::string SafetensorsHeader::Bytes() const {
  const auto total = static_cast<size_t>(kSegmentHeaderBytes);
  std::string bytes;
  bytes.reserve(total);
  bytes.append(LengthBytes()).append("{").append(entries_).append("}");
  bytes.resize(total, ' ');
  return bytes;
}

bool SafetensorsHeader::IsAt(std::span<const std::byte> beginning) const {
  std::string_view text(reinterpret_cast<const char*>(beginning.data()),
                        beginning.size());
  if (text.size() != static_cast<size_t>(kSegmentHeaderBytes)) return false;
  const std::string length = LengthBytes();
  for (const std::string_view part :
       {std::string_view(length), std::string_view("{"),
        std::string_view(entries_), std::string_view("}")}) {
    if (!text.starts_with(part)) return false;
    text.remove_prefix(part.size());
  }
  // All alike, and the first one a space.
  return text.empty() || (text.front() == ' ' &&
                          text.substr(1) == text.substr(0, text.size() - 1));
}

Result<std::vector<SafetensorsEntry>> DecodeSafetensorsHeader(
    std::span<const std::byte> beginning, int64_t file_bytes) {
  if (beginning.size() < kLengthBytes) return Corrupt("no header");
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(beginning[i]) << (8 * i);
  }
  if (length == 0) return Corrupt("this segment was not sealed");
  if (length > beginning.size() - kLengthBytes) {
    return Corrupt("a header of " + std::to_string(length) + " bytes");
  }
  const std::string_view text(
      reinterpret_cast<const char*>(beginning.data()) + kLengthBytes, length);
  if (text.front() != '{') return Corrupt("the header does not begin with {");

  JsonParser parser;
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::object object,
                          parser.Parse(text));
  std::vector<SafetensorsEntry> entries;
  int64_t position = 0;
  for (const auto& [name, value] : object) {
    if (name == "__metadata__") continue;
    Result<SafetensorsEntry> entry = DecodeEntry(name, value);
    if (!entry.ok()) {
      return entry.error().WithContext("tensor '" + Abridged(name) + "'");
    }
    if (entry->begin != position ||
        (!entries.empty() && entry->sequence <= entries.back().sequence)) {
      return Corrupt("tensor '" + Abridged(name) + "' is out of order");
    }
    position = entry->end;
    entries.push_back(*std::move(entry));
  }
  const int64_t header = static_cast<int64_t>(kLengthBytes + length);
  if (file_bytes < header || file_bytes - header != position) {
    return Corrupt("the tensors end at byte " + std::to_string(position) +
                   " after the header, the file elsewhere");
  }
  return entries;
}

}  // namespace ttrace
