#include "src/experiment/state_changes.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

// What else but a factor made of the change, at most: the rounding of products.
// A smaller change of values of few bits has no factor that could be named.
constexpr double kRest = 0.02;

std::optional<double> FactorOf(const Json& json) {
  const auto rest = json.find("rest");
  const double factor = NumberAt(json, "factor");
  const bool known = rest != json.end() && rest->is_number() &&
                     std::isfinite(factor) &&
                     rest->get<double>() <= kRest * std::abs(factor - 1);
  return known ? std::optional(factor) : std::nullopt;
}

bool AddFound(int rank, int at, const Json& json, StateChanges* out) {
  const auto changed = json.find("changed");
  if (changed == json.end() || !changed->is_array()) return false;
  for (std::string& arg : TextsAt(json, "states")) {
    out->looked_at[at].insert(std::move(arg));
  }
  for (const Json& entry : *changed) {
    if (!entry.is_object()) return false;
    FoundState state{at, TextAt(entry, "arg"), TextAt(entry, "fqn")};
    const auto [it, is_new] = out->changed.try_emplace(std::move(state));
    StateChange& change = it->second;
    const std::optional<double> factor = FactorOf(entry);
    change.sampled += CountAt(entry, "sampled");
    change.differs += CountAt(entry, "differs");
    change.factor = is_new ? factor : CommonFactor(change.factor, factor);
    change.ranks.insert(rank);
  }
  return true;
}

void AddGradients(int rank, int at, const Json& json, StateChanges* out) {
  KeptGradients& kept = out->gradients[at];
  kept.parameters = std::max(kept.parameters, CountAt(json, "parameters"));
  for (std::string& fqn : TextsAt(json, "kept")) {
    kept.ranks[std::move(fqn)].insert(rank);
  }
}

void AddNote(const ParsedNote& note, StateChanges* out) {
  const std::optional<int> at = note.iteration();
  if (!at) {
    ++out->malformed;
  } else if (note.kind == "found_states") {
    out->malformed += !AddFound(note.rank, *at, note.json, out);
  } else if (note.kind == "found_gradients") {
    AddGradients(note.rank, *at, note.json, out);
  } else {
    out->stepped_again.insert(*at);
  }
}

}  // namespace

std::optional<double> CommonFactor(const std::optional<double>& a,
                                   const std::optional<double>& b) {
  const bool common = a && b && std::abs(*a - *b) <= kRest * std::abs(*a - 1);
  return common ? a : std::nullopt;
}

bool StateChanges::LookedAt(const FoundState& state) const {
  const auto found = looked_at.find(state.iteration);
  return found != looked_at.end() && found->second.contains(state.arg);
}

StateChanges ReadStateChanges(const NoteList& notes) {
  StateChanges out;
  out.malformed +=
      ForEachNote(notes, {"found_states", "found_gradients", "second_step"},
                  [&](const ParsedNote& note) { AddNote(note, &out); });
  return out;
}

}  // namespace ttrace
