#include "src/pipeline/side.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace ttrace {
namespace {

using Json = nlohmann::json;

std::string Text(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) return "";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

// "decoder.layers.0.x, decoder.layers.1.x" from a JSON array of strings.
std::string Examples(const Json& object) {
  const auto it = object.find("examples");
  if (it == object.end() || !it->is_array()) return "";
  std::string out;
  for (const Json& example : *it) {
    if (!out.empty()) out += ", ";
    out += example.is_string() ? example.get<std::string>() : example.dump();
  }
  return out;
}

int64_t Count(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

}  // namespace

Result<Side> Side::Open(const std::string& folder,
                        const std::vector<std::string>& leg_folders) {
  Side side;
  std::vector<std::string> folders = {folder};
  folders.insert(folders.end(), leg_folders.begin(), leg_folders.end());
  for (const std::string& path : folders) {
    TTRACE_ASSIGN_OR_RETURN(auto trace, Trace::Open(path));
    side.FindDefects(*trace);
    if (side.catalogs_.empty()) side.ReadNotes(*trace, path.c_str());
    side.catalogs_.push_back(std::make_shared<Catalog>(std::move(trace)));
  }
  return side;
}

const TensorPieces* Side::Find(const std::string& leg,
                               const TensorId& id) const {
  for (const auto& catalog : catalogs_) {
    if (const TensorPieces* found = catalog->Find(leg, id)) return found;
  }
  return nullptr;
}

const TensorPieces* Side::FindSameValue(const std::string& leg,
                                        TensorId id) const {
  if (const TensorPieces* found = Find(leg, id)) return found;
  if (id.pass != Pass::kRecompute) return nullptr;
  id.pass = Pass::kForward;
  return Find(leg, id);
}

std::vector<std::string> Side::Legs() const {
  std::set<std::string> legs;
  for (const auto& catalog : catalogs_) {
    legs.insert(catalog->legs().begin(), catalog->legs().end());
  }
  return {legs.begin(), legs.end()};
}

bool Side::HasLeg(const std::string& leg) const {
  return std::any_of(catalogs_.begin(), catalogs_.end(),
                     [&](const auto& c) { return c->HasLeg(leg); });
}

std::vector<std::string> Side::NoiseLegs(const std::string& prefix) const {
  std::vector<std::string> out;
  for (const std::string& leg : Legs()) {
    if (leg.size() > prefix.size() + 1 && leg.starts_with(prefix + ".") &&
        std::all_of(leg.begin() + static_cast<std::ptrdiff_t>(prefix.size()) + 1,
                    leg.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      out.push_back(leg);
    }
  }
  return out;
}

std::optional<DType> Side::ComputeDType() const {
  std::optional<DType> lowest;
  for (const Role role : {Role::kParam, Role::kParamUpdated, Role::kOutput}) {
    for (const auto& [id, pieces] : real()) {
      if (id.role != role) continue;
      const DType dtype = pieces.pieces.front()->dtype;
      if (!Info(dtype).floating) continue;
      if (!lowest || UnitRoundoff(dtype) > UnitRoundoff(*lowest)) {
        lowest = dtype;
      }
    }
    if (lowest) break;
  }
  return lowest;
}

std::set<int> Side::Iterations() const {
  std::set<int> out;
  for (const auto& [id, pieces] : real()) {
    if (id.role == Role::kOutput) out.insert(id.iteration);
  }
  return out;
}

int Side::MicroBatchesPerRank() const {
  std::map<std::pair<int, int>, std::set<int>> seen;  // (rank, iteration)
  for (const Record& record : trace().records()) {
    if (record.leg == "real" && record.micro_batch >= 0) {
      seen[{record.rank, record.id.iteration}].insert(record.micro_batch);
    }
  }
  size_t most = 1;
  for (const auto& [key, batches] : seen) most = std::max(most, batches.size());
  return static_cast<int>(most);
}

void Side::FindDefects(const Trace& trace) {
  if (!trace.missing_ranks().empty()) {
    defects_.push_back(fmt::format(
        "{}: {} of {} ranks left no trace (rank {})", trace.folder(),
        trace.missing_ranks().size(), trace.world_size(),
        fmt::join(trace.missing_ranks(), ", ")));
  }
  for (const RankTrace& rank : trace.ranks()) {
    if (rank.closed && rank.complete) continue;
    defects_.push_back(fmt::format(
        "{}: the trace of rank {} is incomplete: {}", trace.folder(),
        rank.meta.rank,
        !rank.closed ? "it was never closed (the process was killed, or still "
                       "runs)"
                     : rank.incomplete_reason));
  }
}

void Side::ReadNotes(const Trace& trace, const char* side) {
  std::set<std::string> once;
  const auto say = [&](std::string text) {
    if (once.insert(text).second) notes_.push_back(std::move(text));
  };
  std::map<std::string, int64_t> unknown;
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) {
      const Json json = Json::parse(note.json, nullptr, false);
      if (!json.is_object()) continue;
      if (note.kind == "not_materialised") {
        not_materialised_.emplace(Text(json, "fqn"), Text(json, "reason"));
      } else if (note.kind == "not_observed") {
        ++unknown[fmt::format("class {}: {}", Text(json, "class"),
                              Text(json, "reason"))];
      } else if (note.kind == "leg_skipped") {
        say(fmt::format("{}: leg {} was skipped: {}", side, Text(json, "leg"),
                        Text(json, "reason")));
      } else if (note.kind == "graft") {
        const std::string what = Text(json, "what");
        (what == "weights" ? weights_grafted_ : data_grafted_) = true;
        if (Count(json, "differs") > 0) {
          say(fmt::format(
              "rank {} iteration {}: its own {} differed from the reference "
              "in {} of {} tensors and were replaced ({})",
              rank.meta.rank, Text(json, "iteration"), what,
              Count(json, "differs"), Count(json, "of"), Examples(json)));
        }
      } else if (note.kind == "replay") {
        const auto leaks = json.find("leaks");
        if (leaks != json.end() && leaks->is_array() && !leaks->empty()) {
          say(fmt::format("{}: leg {} left state behind: {}", side,
                          Text(json, "leg"), leaks->dump()));
        }
      } else if (note.kind == "attribute") {
        say(fmt::format("{}: {}.{} is {} where the topology expects {}", side,
                        Text(json, "fqn"), Text(json, "name"),
                        Text(json, "value"), Text(json, "expected")));
      } else if (note.kind == "notice" || note.kind == "stopped") {
        say(fmt::format("{}: rank {}: {}", side, rank.meta.rank,
                        Text(json, note.kind == "notice" ? "text" : "reason")));
      }
    }
  }
  for (const auto& [text, count] : unknown) {
    say(fmt::format("{}: {} modules not observed, {}", side, count, text));
  }
}

}  // namespace ttrace
