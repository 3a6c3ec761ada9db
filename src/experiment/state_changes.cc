#include "src/experiment/state_changes.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/experiment/note_json.h"

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

bool AddFound(int rank, const Json& json, StateChanges* out) {
  if (!json.is_object()) return false;
  const auto iteration = json.find("iteration");
  const auto changed = json.find("changed");
  if (iteration == json.end() || !iteration->is_number_integer() ||
      changed == json.end() || !changed->is_array()) {
    return false;
  }
  const int at = iteration->get<int>();
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

bool AddGradients(int rank, const Json& json, StateChanges* out) {
  if (!json.is_object()) return false;
  const auto iteration = json.find("iteration");
  if (iteration == json.end() || !iteration->is_number_integer()) return false;
  KeptGradients& kept = out->gradients[iteration->get<int>()];
  kept.parameters = std::max(kept.parameters, CountAt(json, "parameters"));
  for (std::string& fqn : TextsAt(json, "kept")) {
    kept.ranks[std::move(fqn)].insert(rank);
  }
  return true;
}

bool AddSecondStep(const Json& json, StateChanges* out) {
  if (!json.is_object()) return false;
  const auto iteration = json.find("iteration");
  if (iteration == json.end() || !iteration->is_number_integer()) return false;
  out->stepped_again.insert(iteration->get<int>());
  return true;
}

bool Add(const Note& note, StateChanges* out) {
  const auto json = [&] { return Json::parse(note.json, nullptr, false); };
  if (note.kind == "found_states") return AddFound(note.rank, json(), out);
  if (note.kind == "found_gradients") {
    return AddGradients(note.rank, json(), out);
  }
  return note.kind != "second_step" || AddSecondStep(json(), out);
}

void AddNote(const Note& note, StateChanges* out) {
  if (!Add(note, out)) ++out->malformed;
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

StateChanges ReadStateChanges(const Trace& trace) {
  StateChanges out;
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) AddNote(note, &out);
  }
  return out;
}

StateChanges ReadStateChanges(const std::vector<Note>& notes) {
  StateChanges out;
  for (const Note& note : notes) AddNote(note, &out);
  return out;
}

}  // namespace ttrace
