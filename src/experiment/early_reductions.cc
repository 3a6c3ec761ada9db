#include "src/experiment/early_reductions.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "src/experiment/note_json.h"

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

bool Add(const Note& note, EarlyReductions* out) {
  const Json json = Json::parse(note.json, nullptr, false);
  if (!json.is_object() || !json.contains("iteration") ||
      !json.contains("late") || !json["late"].is_array()) {
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
  for (const std::string& fqn : TextsAt(json, "parameters")) {
    EarlyReduction& reduction = out->seen[{*iteration, fqn}];
    reduction.late.insert(late.begin(), late.end());
    reduction.ranks.insert(note.rank);
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

EarlyReductions ReadEarlyReductions(const std::vector<Note>& notes) {
  EarlyReductions out;
  for (const Note& note : notes) {
    if (note.kind == "reduced_early") out.malformed += !Add(note, &out);
  }
  return out;
}

EarlyReductions ReadEarlyReductions(const Trace& trace) {
  EarlyReductions out;
  for (const RankTrace& rank : trace.ranks()) {
    EarlyReductions of_rank = ReadEarlyReductions(rank.notes);
    out.malformed += of_rank.malformed;
    for (auto& [what, reduction] : of_rank.seen) {
      EarlyReduction& all = out.seen[what];
      all.late.merge(reduction.late);
      all.ranks.merge(reduction.ranks);
    }
  }
  return out;
}

}  // namespace ttrace
