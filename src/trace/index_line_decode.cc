#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/trace/format.h"
#include "src/trace/index_line.h"
#include "src/trace/record_check.h"

namespace ttrace {
namespace {

constexpr size_t kMaxDims = 64;

Error Corrupt(const Error& error) {
  return Error(ErrorCode::kCorrupt, error.message());
}

Result<BatchRows> DecodeRows(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const Shape rows, fields.Ints("rows", 0, 4));
  if (rows.size() != 4 || rows[0] >= static_cast<int64_t>(kMaxDims)) {
    return BadField("rows", "is not [dim, begin, count, global]");
  }
  return BatchRows{static_cast<int>(rows[0]), rows[1], rows[2], rows[3]};
}

Result<Box> DecodeBox(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::array array,
                          fields.Array("box"));
  Box box;
  for (const simdjson::dom::element element : array) {
    simdjson::dom::array triple;
    BoxDim dim;
    if (element.get(triple) != simdjson::SUCCESS || triple.size() != 3 ||
        triple.at(0).get(dim.begin) != simdjson::SUCCESS ||
        triple.at(1).get(dim.size) != simdjson::SUCCESS ||
        triple.at(2).get(dim.of) != simdjson::SUCCESS) {
      return BadField("box", "has an element that is not [begin, size, of]");
    }
    if (box.size() == kMaxDims) return BadField("box", "is too long");
    box.push_back(dim);
  }
  return box;
}

Result<RoutedRows> DecodeRouted(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::object object,
                          fields.Object("routed"));
  const JsonFields routed(object);
  RoutedRows out;
  TTRACE_ASSIGN_OR_RETURN(out.by, routed.Text("by"));
  TTRACE_ASSIGN_OR_RETURN(out.arg, routed.Text("arg"));
  TTRACE_ASSIGN_OR_RETURN(out.expert, routed.SmallInt("expert", 0));
  TTRACE_ASSIGN_OR_RETURN(out.group, routed.Text("group"));
  return out;
}

Result<uint64_t> DecodeHash(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const std::string_view text, fields.Text("xxh3"));
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, 16);
  if (text.size() != 16 || rest != end || error != std::errc()) {
    return BadField("xxh3", "is not 16 hexadecimal digits");
  }
  return value;
}

Status DecodeId(const JsonFields& fields, TensorId& id) {
  TTRACE_ASSIGN_OR_RETURN(id.fqn, fields.Text("fqn"));
  TTRACE_ASSIGN_OR_RETURN(const std::string_view role, fields.Text("role"));
  const std::optional<Role> parsed_role = ParseRole(role);
  if (!parsed_role) return BadField("role", "is unknown: " + Abridged(role));
  id.role = *parsed_role;
  TTRACE_ASSIGN_OR_RETURN(id.iteration, fields.SmallInt("iteration", 0));
  TTRACE_ASSIGN_OR_RETURN(id.call, fields.SmallInt("call", 0));
  TTRACE_ASSIGN_OR_RETURN(id.arg, fields.Text("arg"));
  TTRACE_ASSIGN_OR_RETURN(const std::string_view pass, fields.Text("pass"));
  const std::optional<Pass> parsed_pass = ParsePass(pass);
  if (!parsed_pass) return BadField("pass", "is unknown: " + Abridged(pass));
  id.pass = *parsed_pass;
  return Done{};
}

// Of a record that does not hold its own values.
Status DecodeOrigin(const JsonFields& fields, RecordFields& record) {
  if (fields.Has("same_as")) {
    TTRACE_ASSIGN_OR_RETURN(record.same_as, fields.Int("same_as", 0));
  }
  if (fields.Has("measured_against")) {
    TTRACE_ASSIGN_OR_RETURN(const int64_t against,
                            fields.Int("measured_against", 0));
    record.measured = Measured{against};
  }
  if (fields.Has("summary")) {
    TTRACE_ASSIGN_OR_RETURN(const std::string_view text,
                            fields.Text("summary"));
    record.summary = ParseSummary(text);
    if (!record.summary) {
      return BadField("summary", "is unknown: " + Abridged(text));
    }
  }
  if (record.measured && (record.same_as || record.summary)) {
    return BadField("measured_against", "excludes same_as and summary");
  }
  return Done{};
}

Status DecodeExtent(const JsonFields& fields, Extent& extent) {
  TTRACE_ASSIGN_OR_RETURN(extent.segment,
                          fields.SmallInt("segment", 0, kMaxSegments - 1));
  TTRACE_ASSIGN_OR_RETURN(
      extent.offset, fields.Int("offset", kSegmentHeaderBytes, kMaxOffset));
  TTRACE_ASSIGN_OR_RETURN(extent.xxh3, DecodeHash(fields));
  return Done{};
}

}  // namespace

std::optional<Summary> ParseSummary(std::string_view text) {
  for (const Summary summary : {Summary::kDigest, Summary::kSketch}) {
    if (ToString(summary) == text) return summary;
  }
  return std::nullopt;
}

Result<IndexLine> IndexLineDecoder::DecodeRecord(
    const JsonFields& fields) const {
  RecordFields record;
  record.rank = meta_.rank;
  TTRACE_ASSIGN_OR_RETURN(record.sequence,
                          fields.Int("sequence", 0, kMaxSequence - 1));
  TTRACE_ASSIGN_OR_RETURN(record.leg, fields.Text("leg"));
  TTRACE_RETURN_IF_ERROR(DecodeId(fields, record.id));
  TTRACE_ASSIGN_OR_RETURN(record.micro_batch,
                          fields.SmallInt("micro_batch", -1));

  TTRACE_ASSIGN_OR_RETURN(const std::string_view dtype, fields.Text("dtype"));
  const std::optional<DType> parsed_dtype = ParseDType(dtype);
  if (!parsed_dtype) return BadField("dtype", "is unknown: " + Abridged(dtype));
  record.dtype = *parsed_dtype;
  TTRACE_ASSIGN_OR_RETURN(record.local_shape,
                          fields.Ints("shape", 0, kMaxDims));
  TTRACE_ASSIGN_OR_RETURN(const Shape global_shape,
                          fields.Ints("global_shape", 0, kMaxDims));
  TTRACE_ASSIGN_OR_RETURN(const std::string_view placements,
                          fields.Text("placements"));
  Result<PlacementMap> parsed = ParsePlacements(placements);
  if (!parsed.ok()) return Corrupt(parsed.error());
  record.placements = *std::move(parsed);
  if (fields.Has("rows")) {
    TTRACE_ASSIGN_OR_RETURN(record.rows, DecodeRows(fields));
  }
  if (fields.Has("box")) {
    TTRACE_ASSIGN_OR_RETURN(record.box, DecodeBox(fields));
  }
  if (fields.Has("routed")) {
    TTRACE_ASSIGN_OR_RETURN(record.routed, DecodeRouted(fields));
  }
  TTRACE_ASSIGN_OR_RETURN(const Shape scale, fields.Ints("scale", 1, 2));
  if (scale.size() != 2) return BadField("scale", "is not two integers");
  record.scale = {scale[0], scale[1]};
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::array reduced,
                          fields.Array("reduced_over"));
  for (const simdjson::dom::element element : reduced) {
    std::string_view name;
    if (element.get(name) != simdjson::SUCCESS) {
      return BadField("reduced_over", "has an element that is no string");
    }
    record.reduced_over.emplace_back(name);
    // The check below is that names are unique, so that a longer list is wrong
    // anyway and need not be built.
    if (record.reduced_over.size() > kMaxMeshDims + 1) {
      return BadField("reduced_over", "is too long");
    }
  }

  TTRACE_RETURN_IF_ERROR(DecodeExtent(fields, record.extent));
  const Status status = CompleteRecord(meta_, global_shape, record);
  if (!status.ok()) return Corrupt(status.error());
  TTRACE_ASSIGN_OR_RETURN(const int64_t bytes, fields.Int("bytes", 0));
  TTRACE_RETURN_IF_ERROR(DecodeOrigin(fields, record));
  if (!record.holds_values()) {
    // Less than the values are, or they would have been kept.
    if (bytes >= record.extent.bytes) {
      return BadField("bytes", "is no less than the values would be");
    }
    record.extent.bytes = bytes;
  }
  if (bytes != record.extent.bytes) {
    return BadField("bytes", "is " + std::to_string(bytes) +
                                 ", but dtype and shape need " +
                                 std::to_string(record.extent.bytes));
  }
  return IndexLine(std::move(record));
}

Result<IndexLine> IndexLineDecoder::DecodePadded(std::string_view line) {
  if (line.size() > kMaxIndexLineBytes) {
    return Error(ErrorCode::kCorrupt, "longer than any line is written");
  }
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::object object,
                          parser_.ParsePadded(line));
  const JsonFields fields(object);
  TTRACE_ASSIGN_OR_RETURN(const std::string_view type, fields.Text("type"));
  if (type == "record") return DecodeRecord(fields);
  if (type == "note") {
    NoteLine note;
    TTRACE_ASSIGN_OR_RETURN(note.kind, fields.Text("kind"));
    if (note.kind.empty()) return BadField("kind", "is empty");
    TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::object data,
                            fields.Object("data"));
    note.json = simdjson::minify(data);
    return IndexLine(std::move(note));
  }
  if (type == "seal") {
    SealLine seal;
    TTRACE_ASSIGN_OR_RETURN(seal.iteration, fields.SmallInt("iteration", 0));
    TTRACE_ASSIGN_OR_RETURN(seal.leg, fields.Text("leg"));
    if (seal.leg.empty()) return BadField("leg", "is empty");
    return IndexLine(std::move(seal));
  }
  if (type == "end") {
    EndLine end;
    TTRACE_ASSIGN_OR_RETURN(end.complete, fields.Bool("complete"));
    TTRACE_ASSIGN_OR_RETURN(end.reason, fields.Text("reason"));
    return IndexLine(std::move(end));
  }
  return BadField("type", "is unknown: " + Abridged(type));
}

}  // namespace ttrace
