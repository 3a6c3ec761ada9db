#include "src/experiment/early_reductions.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

// A number of something, from 0 on.
std::optional<int> Ordinal(const Json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;
  const auto value = json.get<uint64_t>();
  if (value > static_cast<uint64_t>(std::numeric_limits<int>::max())) {
    return std::nullopt;
  }
  return static_cast<int>(value);
}

bool Add(const ParsedNote& note, EarlyReductions* out) {
  const Json& json = note.json;
  if (!json.contains("iteration") || !json.contains("late") ||
      !json["late"].is_array()) {
    return false;
  }
  const auto iteration = Ordinal(json["iteration"]);
  std::set<int> late;
  for (const Json& item : json["late"]) {
    const auto micro_batch = Ordinal(item);
    if (!micro_batch) return false;
    late.insert(*micro_batch);
  }
  if (!iteration || late.empty()) return false;
  const bool local_is_whole =
      json.contains("local_is_whole") && json["local_is_whole"] == true;
  for (const std::string& fqn : TextsAt(json, "parameters")) {
    EarlyReduction& reduction = out->seen[{*iteration, fqn}];
    reduction.late.insert(late.begin(), late.end());
    reduction.ranks.insert(note.rank);
    reduction.local_is_whole |= local_is_whole;
  }
  return true;
}

}  // namespace

const EarlyReduction* EarlyReductions::Find(
    int iteration, const std::string& fqn,
    const std::vector<int>& ranks) const {
  const auto found = seen.find({iteration, fqn});
  if (found == seen.end()) return nullptr;
  const bool shared = std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
    return found->second.ranks.contains(rank);
  });
  return shared ? &found->second : nullptr;
}

EarlyReductions ReadEarlyReductions(const NoteList& notes) {
  EarlyReductions out;
  out.malformed += ForEachNote(
      notes, {"reduced_early"},
      [&](const ParsedNote& note) { out.malformed += !Add(note, &out); });
  return out;
}

}  // namespace ttrace
