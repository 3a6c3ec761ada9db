#include "src/experiment/side.h"

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
    if (side.catalogs_.empty()) side.ReadNotes(*trace);
    side.ReadNotIsolated(*trace);
    side.catalogs_.push_back(std::make_shared<Catalog>(std::move(trace)));
    side.NoteUnfinishedSums(*side.catalogs_.back());
  }
  return side;
}

bool Side::Completed(int iteration) const {
  return std::all_of(
      trace().ranks().begin(), trace().ranks().end(),
      [&](const RankTrace& rank) { return rank.Completed(iteration, "real"); });
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
        std::all_of(
            leg.begin() + static_cast<std::ptrdiff_t>(prefix.size()) + 1,
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

int64_t Side::ReductionIndex(const std::string& fqn) const {
  const auto found = reduction_index_.find(fqn);
  return found == reduction_index_.end() ? -1 : found->second;
}

void Side::FindDefects(const Trace& trace) {
  if (!trace.missing_ranks().empty()) {
    defects_.push_back(fmt::format("{}: {} of {} ranks left no trace (rank {})",
                                   trace.folder(), trace.missing_ranks().size(),
                                   trace.world_size(),
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

void Side::NoteUnfinishedSums(const Catalog& catalog) {
  if (catalog.unfinished_sums().empty()) return;
  const auto& [first, rank] = *catalog.unfinished_sums().begin();
  notes_.push_back(fmt::format(
      "{}: {} sums over micro-batches are left out ({} {} of iteration {}, "
      "...): rank {} did not complete them",
      catalog.trace().folder(), catalog.unfinished_sums().size(), first.fqn,
      first.arg.empty() ? ToString(first.role) : first.arg, first.iteration,
      rank));
}

namespace {

// What many ranks, legs or iterations say alike is said once.
class NoteGatherer {
 public:
  explicit NoteGatherer(const Trace& trace) : trace_(trace) {}

  void Add(int rank, const std::string& kind, const Json& json) {
    if (kind == "not_observed") {
      ++unknown_[fmt::format("class {}: {}", Text(json, "class"),
                             Text(json, "reason"))];
    } else if (kind == "leg_skipped") {
      skipped_[Text(json, "reason")].insert(Text(json, "leg"));
    } else if (kind == "graft") {
      AddGraft(rank, json);
    } else if (kind == "replay") {
      const auto leaks = json.find("leaks");
      if (leaks != json.end() && leaks->is_array() && !leaks->empty()) {
        Say(fmt::format("leg {} left state behind: {}", Text(json, "leg"),
                        leaks->dump()));
      }
    } else if (kind == "not_isolated") {
      not_isolated_[Text(json, "reason")].insert(Text(json, "fqn"));
    } else if (kind == "attribute") {
      ++attributes_[fmt::format("{} is {} where the topology expects {}",
                                Text(json, "name"), Text(json, "value"),
                                Text(json, "expected"))];
    } else if (kind == "notice" || kind == "stopped") {
      Say(fmt::format("rank {}: {}", rank,
                      Text(json, kind == "notice" ? "text" : "reason")));
    }
  }

  std::vector<std::string> Finish() {
    for (const auto& [reason, legs] : skipped_) {
      // An fp32 run is its own fp32 leg: nothing is missing.
      if (reason.find("already") != std::string::npos) continue;
      Say(fmt::format("legs {} were skipped: {}", fmt::join(legs, ", "),
                      reason));
    }
    for (const auto& [text, count] : unknown_) {
      Say(fmt::format("{} modules not observed, {}", count, text));
    }
    for (const auto& [reason, modules] : not_isolated_) {
      Say(fmt::format("{} modules could not be isolated ({}{}): {}",
                      modules.size(), *modules.begin(),
                      modules.size() > 1 ? ", ..." : "", reason));
    }
    for (const auto& [text, count] : attributes_) {
      Say(fmt::format("{} times: {}", count, text));
    }
    for (const auto& [what, graft] : grafts_) {
      if (graft.differs == 0) continue;
      Say(
          fmt::format("iteration {}: its own {} differed from the reference's "
                      "in up to {} of {} tensors of a rank (ranks {}) and were "
                      "replaced ({})",
                      graft.iteration, what, graft.differs, graft.of,
                      fmt::join(graft.ranks, ", "), graft.examples));
    }
    return std::move(notes_);
  }

 private:
  struct Graft {
    int64_t iteration = 0;
    int64_t differs = 0;
    int64_t of = 0;
    std::set<int> ranks;
    std::string examples;
  };

  void Say(const std::string& text) {
    std::string note = fmt::format("{}: {}", trace_.folder(), text);
    if (once_.insert(note).second) notes_.push_back(std::move(note));
  }

  void AddGraft(int rank, const Json& json) {
    const int64_t iteration = Count(json, "iteration");
    // After a step of its own a run's weights always differ a little: an
    // optimizer amplifies rounding. Only where it starts is news.
    const auto [it, is_new] = grafts_.try_emplace(Text(json, "what"));
    Graft& graft = it->second;
    if (is_new || iteration < graft.iteration) {
      graft = Graft{};
      graft.iteration = iteration;
    }
    if (iteration != graft.iteration) return;
    if (Count(json, "differs") == 0) return;
    graft.ranks.insert(rank);
    graft.of = std::max(graft.of, Count(json, "of"));
    if (Count(json, "differs") > graft.differs) {
      graft.differs = Count(json, "differs");
      graft.examples = Examples(json);
    }
  }

  const Trace& trace_;
  std::vector<std::string> notes_;
  std::set<std::string> once_;
  std::map<std::string, int64_t> unknown_;
  std::map<std::string, int64_t> attributes_;
  std::map<std::string, std::set<std::string>> not_isolated_;
  std::map<std::string, std::set<std::string>> skipped_;
  std::map<std::string, Graft> grafts_;
};

}  // namespace

void Side::ReadNotes(const Trace& trace) {
  NoteGatherer gatherer(trace);
  collectives_ = ReadCollectives(trace);
  attributes_ = ReadAttributes(trace);
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) {
      const Json json = Json::parse(note.json, nullptr, false);
      if (!json.is_object()) continue;
      gatherer.Add(rank.meta.rank, note.kind, json);
      if (note.kind == "not_materialised") {
        not_materialised_.emplace(Text(json, "fqn"), Text(json, "reason"));
      } else if (note.kind == "reduction_order" && json.contains("names") &&
                 json["names"].is_array()) {
        int64_t index = 0;
        for (const Json& name : json["names"]) {
          if (name.is_string()) {
            reduction_index_.emplace(name.get<std::string>(), index);
          }
          ++index;
        }
      } else if (note.kind == "hands_out") {
        const std::string module = Text(json, "fqn");
        handed_out_.modules.insert(module);
        if (const std::string name = Text(json, "parameter"); !name.empty()) {
          handed_out_.parameters.insert(
              module.empty() ? name : fmt::format("{}.{}", module, name));
        }
      } else if (note.kind == "graft_begins" || note.kind == "graft") {
        (Text(json, "what") == "weights" ? weights_grafted_ : data_grafted_) =
            true;
      }
    }
  }
  notes_ = gatherer.Finish();
  if (collectives_.malformed > 0) {
    notes_.push_back(fmt::format("{}: {} notes of collectives are unreadable",
                                 trace.folder(), collectives_.malformed));
  }
}

// A leg may be a launch and a folder of its own, so these are read from all.
void Side::ReadNotIsolated(const Trace& trace) {
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) {
      if (note.kind != "not_isolated") continue;
      const Json json = Json::parse(note.json, nullptr, false);
      if (!json.is_object()) continue;
      const auto role = ParseRole(Text(json, "role"));
      if (!role || !IsEdge(*role)) continue;
      not_isolated_.push_back(
          {Text(json, "leg"), static_cast<int>(Count(json, "iteration")),
           Text(json, "fqn"), *role, Text(json, "arg"), Text(json, "reason")});
    }
  }
}

}  // namespace ttrace
