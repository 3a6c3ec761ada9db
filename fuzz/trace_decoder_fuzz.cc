// Any bytes, taken for lines of an index, for a safetensors header or for a
// meta.json, must decode to a value or an Error. The first byte says for which.
// What decodes must also survive being written and read again.

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "src/base/check.h"
#include "src/trace/index/index_line.h"
#include "src/trace/rank_meta.h"
#include "src/trace/segments/safetensors_header.h"

namespace ttrace {
namespace {

RankMeta FuzzedMeta() {
  RankMeta meta;
  meta.rank = 5;
  meta.world_size = 12;
  meta.mesh.dims = {{"dp", 2}, {"cp", 2}, {"tp", 3}};
  meta.coordinate = {0, 1, 2};
  return meta;
}

// The last of the lines in `text`, if all of them can be decoded. The records
// of an index refer to lines before them.
Result<IndexLine> DecodeLast(std::string_view text) {
  static const RankMeta meta = FuzzedMeta();
  IndexLineDecoder decoder(meta);
  while (true) {
    const size_t end = text.find('\n');
    std::string padded(text.substr(0, end));
    const size_t size = padded.size();
    padded.append(simdjson::SIMDJSON_PADDING, '\0');
    Result<IndexLine> line =
        decoder.DecodePadded(std::string_view(padded).substr(0, size));
    if (!line.ok() || end == std::string_view::npos) return line;
    text.remove_prefix(end + 1);
  }
}

struct Reencode {
  // With the spec that it is an occurrence of.
  Result<std::string> operator()(const RecordFields& record) const {
    TTRACE_ASSIGN_OR_RETURN(std::string spec, EncodeSpec({0, record.spec()}));
    TTRACE_ASSIGN_OR_RETURN(std::string line, EncodeRecordStart(record, 0));
    AppendExtent(record, line);
    return spec + line;
  }
  Result<std::string> operator()(const SpecLine& l) const {
    return EncodeSpec({0, l.spec});
  }
  Result<std::string> operator()(const NoteLine& l) const {
    return EncodeNote(l);
  }
  Result<std::string> operator()(const SealLine& l) const {
    return EncodeSeal(l);
  }
  Result<std::string> operator()(const EndLine& l) const {
    return EncodeEnd(l);
  }
};

void TryLines(std::string_view text) {
  const Result<IndexLine> line = DecodeLast(text);
  if (!line.ok()) return;
  Result<std::string> again = std::visit(Reencode(), *line);
  if (!again.ok()) return;  // The writer is stricter: an empty kind or leg.
  (*again).pop_back();
  const Result<IndexLine> back = DecodeLast(*again);
  TTRACE_CHECK(back.ok(), "what we write, we read");
  const Result<std::string> third = std::visit(Reencode(), *back);
  TTRACE_CHECK(third.ok() && *third == *again + "\n", "and it is the same");
}

void TryMeta(std::string_view text) {
  const Result<RankMeta> meta = DecodeRankMeta(text);
  if (!meta.ok()) return;
  const Result<std::string> again = EncodeRankMeta(*meta);
  TTRACE_CHECK(again.ok() && DecodeRankMeta(*again).ok(),
               "what we write, we read");
}

}  // namespace
}  // namespace ttrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  switch (data[0] % 3) {
    case 0:
      ttrace::TryLines(text);
      break;
    case 1: {
      const auto bytes = std::as_bytes(std::span(text));
      static_cast<void>(ttrace::DecodeSafetensorsHeader(
          bytes, static_cast<int64_t>(bytes.size()) + data[0]));
      break;
    }
    default:
      ttrace::TryMeta(text);
  }
  return 0;
}
