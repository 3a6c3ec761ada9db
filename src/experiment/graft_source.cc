#include "src/experiment/graft_source.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "src/trace/hex_digest.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

// The text at `manifest[object]["values"]`; empty: there is none.
std::string ValuesIn(const Trace& trace, const char* object) {
  const auto manifest = ParseJson(trace.manifest_json());
  const auto path =
      nlohmann::json::json_pointer(std::string("/") + object + "/values");
  if (!manifest.is_object() || !manifest.contains(path)) return "";
  const auto& value = manifest[path];
  return value.is_string() ? value.get<std::string>() : "";
}

uint64_t DigestOf(const Record& record) {
  const std::string text = record.leg().name() + "|" + ToString(record.id()) +
                           "|" + std::to_string(record.rank()) + "|" +
                           std::to_string(record.micro_batch()) + "|" +
                           HexDigest(record.extent().xxh3);
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace

bool HandsOutValues(const Trace& trace) {
  for (const Record& record : trace.records()) {
    if (record.leg() == kReal && record.summary()) return false;
  }
  return true;
}

std::string DigestOfGraftSource(const std::vector<const Trace*>& traces) {
  uint64_t sum = 0;  // the order does not matter
  for (const Trace* trace : traces) {
    if (std::string made_of = ValuesIn(*trace, "condensed"); !made_of.empty()) {
      return made_of;
    }
    for (const Record& record : trace->records()) {
      if (record.leg() == kReal || record.leg() == kFp32) {
        sum += DigestOf(record);
      }
    }
  }
  return HexDigest(sum);
}

bool GraftedFromAnother(const Side& candidate, const Side& reference) {
  const std::string given = ValuesIn(candidate.trace(), "graft");
  return !given.empty() && given != DigestOfGraftSource(reference.traces());
}

}  // namespace ttrace
