#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/trace/format.h"
#include "src/trace/index/index_line.h"
#include "src/trace/index/record_check.h"

namespace ttrace {
namespace {

constexpr size_t kMaxDims = 64;

Error AsCorrupt(const Error& error) {
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

Result<Role> DecodeRole(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const std::string_view text, fields.Text("role"));
  const std::optional<Role> role = ParseRole(text);
  if (!role) return BadField("role", "is unknown: " + Abridged(text));
  return *role;
}

Result<DType> DecodeDType(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const std::string_view text, fields.Text("dtype"));
  const std::optional<DType> dtype = ParseDType(text);
  if (!dtype) return BadField("dtype", "is unknown: " + Abridged(text));
  return *dtype;
}

Result<PlacementMap> DecodePlacements(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const std::string_view text,
                          fields.Text("placements"));
  Result<PlacementMap> placements = ParsePlacements(text);
  if (!placements.ok()) return AsCorrupt(placements.error());
  return placements;
}

Result<Scale> DecodeScale(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const Shape scale, fields.Ints("scale", 1, 2));
  if (scale.size() != 2) return BadField("scale", "is not two integers");
  return Scale{scale[0], scale[1]};
}

Result<std::vector<std::string>> DecodeReducedOver(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::array reduced,
                          fields.Array("reduced_over"));
  std::vector<std::string> names;
  for (const simdjson::dom::element element : reduced) {
    std::string_view name;
    if (element.get(name) != simdjson::SUCCESS) {
      return BadField("reduced_over", "has an element that is no string");
    }
    names.emplace_back(name);
    // Names are unique, so that a longer list is wrong anyway and need not be
    // built.
    if (names.size() > kMaxMeshDims + 1) {
      return BadField("reduced_over", "is too long");
    }
  }
  return names;
}

// What a spec says, but for the batch.
Result<RecordSpec> DecodeSpecFields(const JsonFields& fields) {
  RecordSpec spec;
  TTRACE_ASSIGN_OR_RETURN(spec.fqn, fields.Text("fqn"));
  TTRACE_ASSIGN_OR_RETURN(spec.role, DecodeRole(fields));
  TTRACE_ASSIGN_OR_RETURN(spec.arg, fields.Text("arg"));
  TTRACE_ASSIGN_OR_RETURN(spec.dtype, DecodeDType(fields));
  TTRACE_ASSIGN_OR_RETURN(spec.local_shape, fields.Ints("shape", 0, kMaxDims));
  TTRACE_ASSIGN_OR_RETURN(spec.global_shape,
                          fields.Ints("global_shape", 0, kMaxDims));
  TTRACE_ASSIGN_OR_RETURN(spec.placements, DecodePlacements(fields));
  if (fields.Has("box")) {
    TTRACE_ASSIGN_OR_RETURN(spec.box, DecodeBox(fields));
  }
  if (fields.Has("routed")) {
    TTRACE_ASSIGN_OR_RETURN(spec.routed, DecodeRouted(fields));
  }
  TTRACE_ASSIGN_OR_RETURN(spec.scale, DecodeScale(fields));
  TTRACE_ASSIGN_OR_RETURN(spec.reduced_over, DecodeReducedOver(fields));
  return spec;
}

// What an occurrence says, but for its rows.
Result<Occurrence> DecodeOccurrenceFields(const JsonFields& fields) {
  Occurrence occurrence;
  TTRACE_ASSIGN_OR_RETURN(const std::string_view leg, fields.Text("leg"));
  occurrence.leg = Leg(leg);
  TTRACE_ASSIGN_OR_RETURN(occurrence.iteration,
                          fields.SmallInt("iteration", 0));
  TTRACE_ASSIGN_OR_RETURN(occurrence.call, fields.SmallInt("call", 0));
  TTRACE_ASSIGN_OR_RETURN(const std::string_view pass, fields.Text("pass"));
  const std::optional<Pass> parsed = ParsePass(pass);
  if (!parsed) return BadField("pass", "is unknown: " + Abridged(pass));
  occurrence.pass = *parsed;
  TTRACE_ASSIGN_OR_RETURN(occurrence.micro_batch,
                          fields.SmallInt("micro_batch", -1));
  return occurrence;
}

Result<ComparedWith> DecodeComparedWith(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::array array,
                          fields.Array("compared_with"));
  ComparedWith legs;
  for (const simdjson::dom::element element : array) {
    std::string_view leg;
    if (element.get(leg) != simdjson::SUCCESS || leg.empty() ||
        leg.size() > kMaxComparedLegBytes) {
      return BadField("compared_with", "has an element that is no leg");
    }
    if (legs.size() == kMaxComparedLegs) {
      return BadField("compared_with", "is too long");
    }
    legs.emplace_back(leg);
  }
  if (legs.empty()) return BadField("compared_with", "is empty");
  return legs;
}

// No more than one thing is said of what the bytes are.
Result<Payload> DecodePayload(const JsonFields& fields) {
  std::optional<int64_t> same_as;
  if (fields.Has("same_as")) {
    TTRACE_ASSIGN_OR_RETURN(same_as, fields.Int("same_as", 0));
  }
  if (fields.Has("measured_against")) {
    TTRACE_ASSIGN_OR_RETURN(const int64_t against,
                            fields.Int("measured_against", 0));
    if (same_as || fields.Has("summary") || fields.Has("compared_with")) {
      return BadField("measured_against",
                      "excludes same_as, summary and compared_with");
    }
    return Payload(KeptDifference{against});
  }
  if (fields.Has("summary")) {
    TTRACE_ASSIGN_OR_RETURN(const std::string_view text,
                            fields.Text("summary"));
    const std::optional<Summary> kind = ParseSummary(text);
    if (!kind) return BadField("summary", "is unknown: " + Abridged(text));
    if (fields.Has("compared_with")) {
      return BadField("summary", "excludes compared_with");
    }
    return Payload(KeptSummary{*kind, same_as});
  }
  if (fields.Has("compared_with")) {
    TTRACE_ASSIGN_OR_RETURN(ComparedWith legs, DecodeComparedWith(fields));
    return Payload(KeptComparison{std::move(legs), same_as});
  }
  return Payload(KeptValues{same_as});
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

Result<IndexLine> IndexLineDecoder::DecodeSpec(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const int64_t number,
                          fields.Int("number", 0, kMaxSequence - 1));
  const auto expected = static_cast<int64_t>(specs_.size());
  if (number != expected) {
    return BadField("number", "is " + std::to_string(number) + " after " +
                                  std::to_string(expected) + " specs");
  }
  TTRACE_ASSIGN_OR_RETURN(RecordSpec spec, DecodeSpecFields(fields));
  if (fields.Has("batch_dim")) {
    TTRACE_ASSIGN_OR_RETURN(spec.batch_dim,
                            fields.SmallInt("batch_dim", 0, int{kMaxDims} - 1));
  }
  Result<SpecFacts> facts = CheckSpec(meta_, spec);
  if (!facts.ok()) return AsCorrupt(facts.error());
  specs_.Add(spec, *std::move(facts));
  return IndexLine(SpecLine{number, std::move(spec)});
}

Result<RecordFields> IndexLineDecoder::DecodeOccurrence(
    const JsonFields& fields) const {
  TTRACE_ASSIGN_OR_RETURN(const int64_t number, fields.Int("spec", 0));
  if (number >= static_cast<int64_t>(specs_.size())) {
    return BadField(
        "spec", "is " + std::to_string(number) + ", which is none before it");
  }
  const auto place = static_cast<size_t>(number);
  const RecordSpec spec = specs_.spec(place);
  TTRACE_ASSIGN_OR_RETURN(Occurrence occurrence,
                          DecodeOccurrenceFields(fields));
  if (spec.batch_dim >= 0) {
    TTRACE_ASSIGN_OR_RETURN(occurrence.row_begin, fields.Int("row", 0));
  }
  Result<RecordFields> record =
      MakeRecord(meta_, spec, specs_.kind(place).facts, occurrence);
  if (!record.ok()) return AsCorrupt(record.error());
  return record;
}

Result<RecordFields> IndexLineDecoder::DecodeWhole(
    const JsonFields& fields) const {
  TTRACE_ASSIGN_OR_RETURN(const Occurrence occurrence,
                          DecodeOccurrenceFields(fields));
  TTRACE_ASSIGN_OR_RETURN(const RecordSpec spec, DecodeSpecFields(fields));
  RecordFields record = UnresolvedRecord(meta_, spec, occurrence);
  if (fields.Has("rows")) {
    TTRACE_ASSIGN_OR_RETURN(record.rows, DecodeRows(fields));
  }
  const Status status = CompleteRecord(meta_, spec.global_shape, record);
  if (!status.ok()) return AsCorrupt(status.error());
  return record;
}

Result<IndexLine> IndexLineDecoder::DecodeRecord(
    const JsonFields& fields) const {
  TTRACE_ASSIGN_OR_RETURN(RecordFields record, fields.Has("spec")
                                                   ? DecodeOccurrence(fields)
                                                   : DecodeWhole(fields));
  TTRACE_ASSIGN_OR_RETURN(record.sequence,
                          fields.Int("sequence", 0, kMaxSequence - 1));
  TTRACE_RETURN_IF_ERROR(DecodeExtent(fields, record.extent));
  TTRACE_ASSIGN_OR_RETURN(const int64_t bytes, fields.Int("bytes", 0));
  TTRACE_ASSIGN_OR_RETURN(record.payload, DecodePayload(fields));
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
  if (type == "spec") return DecodeSpec(fields);
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
    TTRACE_ASSIGN_OR_RETURN(const std::string_view leg, fields.Text("leg"));
    seal.leg = Leg(leg);
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
