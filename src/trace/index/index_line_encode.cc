// Lines are put together as text: building a JSON tree for each would cost more
// than writing a small tensor.

#include <cstdint>
#include <string>
#include <string_view>

#include "src/trace/format.h"
#include "src/trace/hex_digest.h"
#include "src/trace/index/index_chain.h"
#include "src/trace/index/index_line.h"

namespace ttrace {
namespace {

// More than AppendExtent and the chain ever add.
constexpr size_t kExtentReserve = 1024;
// A byte of a name takes six at most.
static_assert(kMaxComparedLegs * (6 * kMaxComparedLegBytes + 3) + 224 <=
              kExtentReserve);

class LineBuilder {
 public:
  explicit LineBuilder(std::string_view type) {
    text_ = "{\"type\":" + QuoteJson(type);
  }

  void Text(std::string_view key, std::string_view value) {
    // A name too long for any line is not worth copying.
    if (value.size() > kMaxIndexLineBytes) {
      problem_ = "is too long";
    } else if (!IsUtf8(value)) {
      problem_ = "is not UTF-8";
    } else {
      return Raw(key, QuoteJson(value));
    }
    if (bad_key_.empty()) bad_key_ = key;
  }
  void Int(std::string_view key, int64_t value) {
    Raw(key, std::to_string(value));
  }
  void Ints(std::string_view key, const Shape& values) {
    std::string list = "[";
    for (const int64_t value : values) {
      if (list.size() > 1) list += ',';
      list += std::to_string(value);
    }
    Raw(key, list + "]");
  }
  void Routed(const RoutedRows& routed) {
    text_ += ",\"routed\":{";
    Text("by", routed.by);
    Text("arg", routed.arg);
    Int("expert", routed.expert);
    Text("group", routed.group);
    text_ += '}';
  }
  void Raw(std::string_view key, std::string_view json) {
    if (text_.back() != '{') text_ += ',';
    text_.append("\"").append(key).append("\":").append(json);
  }

  // The line so far, if `reserve` further bytes still fit a reader's limit.
  Result<std::string> Take(size_t reserve) && {
    if (!bad_key_.empty()) return Invalid(bad_key_ + " " + problem_);
    if (text_.size() + reserve > kMaxIndexLineBytes) {
      return Invalid("an index line of " + std::to_string(text_.size()) +
                     " bytes");
    }
    return std::move(text_);
  }
  Result<std::string> Finish() && {
    text_ += "}";
    TTRACE_ASSIGN_OR_RETURN(std::string text,
                            std::move(*this).Take(1 + IndexChain::kAddedBytes));
    text += '\n';
    return text;
  }

 private:
  std::string text_;
  std::string bad_key_;
  std::string problem_;
};

std::string TextsJson(const std::vector<std::string>& values) {
  std::string list = "[";
  for (const std::string& value : values) {
    if (list.size() > 1) list += ',';
    list += QuoteJson(value);
  }
  return list + "]";
}

std::string BoxJson(const Box& box) {
  std::string json = "[";
  for (const BoxDim& dim : box) {
    if (json.size() > 1) json += ',';
    json.append("[").append(std::to_string(dim.begin)).append(",");
    json.append(std::to_string(dim.size)).append(",");
    json.append(std::to_string(dim.of)).append("]");
  }
  return json + "]";
}

}  // namespace

Result<std::string> EncodeSpec(const SpecLine& of) {
  const RecordSpec& spec = of.spec;
  LineBuilder line("spec");
  line.Int("number", of.number);
  line.Text("fqn", spec.fqn);
  line.Text("role", ToString(spec.role));
  line.Text("arg", spec.arg);
  line.Text("dtype", Info(spec.dtype).torch_name);
  line.Ints("shape", spec.local_shape);
  line.Ints("global_shape", spec.global_shape);
  line.Text("placements", ToString(spec.placements));
  if (spec.batch_dim >= 0) line.Int("batch_dim", spec.batch_dim);
  if (spec.box) line.Raw("box", BoxJson(*spec.box));
  if (spec.routed) line.Routed(*spec.routed);
  line.Ints("scale", {spec.scale.numerator, spec.scale.denominator});
  line.Raw("reduced_over", TextsJson(spec.reduced_over));
  return std::move(line).Finish();
}

Result<std::string> EncodeRecordStart(const RecordFields& record,
                                      int64_t spec) {
  LineBuilder line("record");
  line.Int("sequence", record.sequence);
  line.Int("spec", spec);
  line.Text("leg", record.leg.name());
  line.Int("iteration", record.id.iteration);
  line.Int("call", record.id.call);
  line.Text("pass", ToString(record.id.pass));
  line.Int("micro_batch", record.micro_batch);
  if (record.rows) line.Int("row", record.rows->begin);
  return std::move(line).Take(kExtentReserve);
}

void AppendExtent(const RecordFields& record, std::string& line) {
  const Extent& extent = record.extent;
  if (const std::optional<int64_t> same_as = record.same_as()) {
    line.append(",\"same_as\":").append(std::to_string(*same_as));
  }
  if (const auto* measured = std::get_if<KeptDifference>(&record.payload)) {
    line.append(",\"measured_against\":");
    line.append(std::to_string(measured->against));
  } else if (const auto* summary = std::get_if<KeptSummary>(&record.payload)) {
    line.append(",\"summary\":\"").append(ToString(summary->kind));
    line.append("\"");
  } else if (const auto* compared =
                 std::get_if<KeptComparison>(&record.payload)) {
    line.append(",\"compared_with\":")
        .append(TextsJson(NamesOf(compared->legs)));
  }
  line.append(",\"segment\":").append(std::to_string(extent.segment));
  line.append(",\"offset\":").append(std::to_string(extent.offset));
  line.append(",\"bytes\":").append(std::to_string(extent.bytes));
  line.append(",\"xxh3\":\"").append(HexDigest(extent.xxh3));
  line.append("\"}\n");
}

Result<std::string> EncodeNote(const NoteLine& note) {
  if (note.kind.empty()) return Invalid("a note without a kind");
  TTRACE_ASSIGN_OR_RETURN(const std::string json, CompactJsonObject(note.json));
  LineBuilder line("note");
  line.Text("kind", note.kind);
  line.Raw("data", json);
  return std::move(line).Finish();
}

Result<std::string> EncodeSeal(const SealLine& seal) {
  if (seal.iteration < 0 || seal.leg.empty()) {
    return Invalid("a seal needs an iteration and a leg");
  }
  LineBuilder line("seal");
  line.Int("iteration", seal.iteration);
  line.Text("leg", seal.leg.name());
  return std::move(line).Finish();
}

Result<std::string> EncodeEnd(const EndLine& end) {
  LineBuilder line("end");
  line.Raw("complete", end.complete ? "true" : "false");
  line.Text("reason", end.reason);
  return std::move(line).Finish();
}

}  // namespace ttrace
