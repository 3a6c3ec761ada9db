#include "src/experiment/side.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "src/base/count_words.h"
#include "src/base/rank_words.h"
#include "src/experiment/gather_notes.h"
#include "src/experiment/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

// In notes.
std::string HookWords(const ReductionHook& hook) {
  if (hook.why_unknown.empty()) {
    return fmt::format(
        "gradients are reduced by a communication hook, {}, which sends {}: "
        "reduced gradients are judged with that rounding",
        hook.name, hook.sends ? Info(*hook.sends).torch_name : "");
  }
  return fmt::format(
      "gradients are reduced by a communication hook, {}, in a precision that "
      "is not known ({}): reduced gradients are not compared with the "
      "reference's",
      hook.name, hook.why_unknown);
}

}  // namespace

Result<Side> Side::Open(const std::string& folder,
                        const std::vector<std::string>& leg_folders,
                        int threads) {
  Side side;
  std::vector<std::string> folders = {folder};
  folders.insert(folders.end(), leg_folders.begin(), leg_folders.end());
  for (const std::string& path : folders) {
    TTRACE_ASSIGN_OR_RETURN(auto trace, Trace::Open(path, threads));
    side.Add(std::move(trace));
  }
  side.ReadTermsOfReductions();
  return side;
}

Side Side::Of(std::shared_ptr<const Trace> trace) {
  Side side;
  side.Add(std::move(trace));
  return side;
}

void Side::Add(std::shared_ptr<const Trace> trace) {
  FindDefects(*trace);
  if (catalogs_.empty()) ReadNotes(*trace);
  ReadNotIsolated(*trace);
  catalogs_.push_back(std::make_shared<Catalog>(std::move(trace)));
  NoteUnfinishedSums(*catalogs_.back());
  FindCutLegs(*catalogs_.back());
}

std::vector<const Trace*> Side::traces() const {
  std::vector<const Trace*> out;
  for (const auto& catalog : catalogs_) out.push_back(&catalog->trace());
  return out;
}

bool Side::Completed(int iteration) const {
  return trace().missing_ranks().empty() &&
         std::all_of(trace().ranks().begin(), trace().ranks().end(),
                     [&](const RankTrace& rank) {
                       return rank.Completed(iteration, "real");
                     });
}

const TensorPieces* Side::Find(const std::string& leg,
                               const TensorId& id) const {
  // A leg that a rank did not end may lack anything. Of the real one, what is
  // whole by itself still says something.
  if (leg != "real" && cut_legs_.contains({leg, id.iteration})) return nullptr;
  if (!Keeps(leg)) return nullptr;
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

void Side::KeepLegs(const std::vector<std::string>& reruns) {
  kept_reruns_.emplace(reruns.begin(), reruns.end());
}

bool Side::Keeps(const std::string& leg) const {
  return !kept_reruns_ || leg == "real" || kept_reruns_->contains(leg);
}

void Side::Reread(const TensorId& id,
                  const std::function<void(RecordFields*)>& change) {
  for (const auto& catalog : catalogs_) catalog->Reread(id, change);
}

std::vector<std::string> Side::Legs() const {
  std::set<std::string> legs;
  for (const auto& catalog : catalogs_) {
    std::copy_if(catalog->legs().begin(), catalog->legs().end(),
                 std::inserter(legs, legs.end()),
                 [&](const std::string& leg) { return Keeps(leg); });
  }
  return {legs.begin(), legs.end()};
}

bool Side::HasLeg(const std::string& leg) const {
  return Keeps(leg) &&
         std::any_of(catalogs_.begin(), catalogs_.end(),
                     [&](const auto& c) { return c->HasLeg(leg); });
}

bool Side::LegCompleted(const Catalog& catalog, const std::string& leg,
                        int iteration) {
  const auto& ranks = catalog.trace().ranks();
  return catalog.trace().missing_ranks().empty() &&
         std::all_of(ranks.begin(), ranks.end(), [&](const RankTrace& rank) {
           return rank.Completed(iteration, leg);
         });
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
  const auto admit = [&](DType dtype) {
    if (!lowest || UnitRoundoff(dtype) > UnitRoundoff(*lowest)) lowest = dtype;
  };
  for (const auto& [module, dtype] : precision_inside_) admit(dtype);
  for (const auto& [id, pieces] : real()) {
    if (id.role != Role::kParam && id.role != Role::kParamUpdated &&
        id.role != Role::kOutput) {
      continue;
    }
    const DType dtype = pieces.pieces.front().dtype();
    // Nothing is computed in 8-bit floats: they are operands of products that
    // are added up in wider ones.
    if (Info(dtype).floating && Info(dtype).itemsize > 1) admit(dtype);
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
    if (record.leg() == "real" && record.micro_batch() >= 0) {
      seen[{record.rank(), record.id().iteration}].insert(record.micro_batch());
    }
  }
  size_t most = 1;
  for (const auto& [key, batches] : seen) most = std::max(most, batches.size());
  return static_cast<int>(most);
}

// Of gradients that are rounded to what they are sent in.
void Side::ReadTermsOfReductions() {
  if (!reduction_hook_ || !reduction_hook_->sends) return;
  for (const auto& [id, pieces] : real()) {
    if (id.role != Role::kGradLocal) continue;
    const DType recorded = pieces.pieces.front().dtype();
    if (UnitRoundoff(*reduction_hook_->sends) <= UnitRoundoff(recorded)) {
      continue;
    }
    reduction_hook_->terms[id] = TermsOverSum(pieces);
  }
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

void Side::FindCutLegs(const Catalog& catalog) {
  std::set<std::string> cut;
  for (const std::string& leg : catalog.legs()) {
    if (leg == "real") continue;
    std::set<int> iterations;
    for (const auto& [id, pieces] : catalog.tensors(leg)) {
      iterations.insert(id.iteration);
    }
    for (const int iteration : iterations) {
      if (LegCompleted(catalog, leg, iteration)) continue;
      cut_legs_.insert({leg, iteration});
      cut.insert(leg);
    }
  }
  if (cut.empty()) return;
  notes_.push_back(
      {NoteKind::kLegNotSealed,
       fmt::format("{} {} not used: a rank did not end {}",
                   cut.size() == 1 ? "leg" : "legs", fmt::join(cut, ", "),
                   cut.size() == 1 ? "it" : "them"),
       "", catalog.trace().folder()});
}

void Side::NoteUnfinishedSums(const Catalog& catalog) {
  if (catalog.unfinished_sums().empty()) return;
  const auto& [first, rank] = *catalog.unfinished_sums().begin();
  const auto count = static_cast<int64_t>(catalog.unfinished_sums().size());
  notes_.push_back(
      {NoteKind::kUnfinishedSums,
       fmt::format("{} over micro-batches {} left out ({}): {} did not "
                   "complete them",
                   Counted(count, "sum"), count == 1 ? "is" : "are",
                   Examples({ToString(first)}, count), RankWords({rank})),
       "", catalog.trace().folder()});
}

void Side::ReadNotes(const Trace& trace) {
  const Json manifest = Json::parse(trace.manifest_json(), nullptr, false);
  if (manifest.is_object()) selection_ = TextAt(manifest, "select");
  collectives_ = ReadCollectives(trace);
  reduction_hook_ = ReadReductionHook(trace, collectives_);
  state_changes_ = ReadStateChanges(trace);
  attributes_ = ReadAttributes(trace);
  source_lines_ = SourceLines::Read(trace);
  early_reductions_ = ReadEarlyReductions(trace);
  fused_modules_ = ReadFusedModules(trace);
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) {
      const Json json = Json::parse(note.json, nullptr, false);
      if (json.is_object()) ReadNote(rank.meta.rank, note.kind, json);
    }
  }
  std::vector<RunNote> notes = GatherNotes(trace);
  notes_.insert(notes_.end(), std::make_move_iterator(notes.begin()),
                std::make_move_iterator(notes.end()));
  if (reduction_hook_) {
    notes_.push_back({NoteKind::kReductionHook, HookWords(*reduction_hook_), "",
                      trace.folder()});
  }
  const auto malformed = [&](int64_t count, const char* of) {
    if (count == 0) return;
    notes_.push_back(
        {NoteKind::kMalformed,
         fmt::format("{} of {} unreadable", Counted(count, "note"), of), "",
         trace.folder()});
  };
  malformed(collectives_.malformed, "collectives");
  malformed(state_changes_.malformed, "found states");
  malformed(early_reductions_.malformed, "early reductions");
}

void Side::ReadNote(int rank, const std::string& kind, const Json& json) {
  if (kind == "not_materialised") {
    not_materialised_.emplace(TextAt(json, "fqn"), TextAt(json, "reason"));
  } else if (kind == "not_observed" || kind == "compiled") {
    NotObserved why;
    why.reason = TextAt(json, "reason");
    why.way_out = TextAt(json, "way_out");
    why.of_class = TextAt(json, "class");
    why.compiled = kind == "compiled";
    not_observed_.emplace(TextAt(json, "fqn"), std::move(why));
  } else if (kind == "not_recorded") {
    not_recorded_.insert(
        {{TextAt(json, "fqn"), TextAt(json, "role")}, TextAt(json, "reason")});
    const auto role = ParseRole(TextAt(json, "role"));
    if (role == Role::kGradReduced) {
      unrecorded_gradient_ = TextAt(json, "fqn");
    }
  } else if (kind == "presumed_alike") {
    if (const auto role = ParseRole(TextAt(json, "role"))) {
      presumed_alike_.insert({TextAt(json, "fqn"), *role});
    }
  } else if (kind == "reduction_order") {
    int64_t index = 0;
    for (const std::string& name : TextsAt(json, "names")) {
      reduction_index_.emplace(name, index++);
    }
  } else if (kind == "hands_out") {
    const std::string module = TextAt(json, "fqn");
    handed_out_.modules.insert(module);
    if (const std::string name = TextAt(json, "parameter"); !name.empty()) {
      handed_out_.parameters.insert(
          module.empty() ? name : fmt::format("{}.{}", module, name));
    }
  } else if (kind == "graft_begins" || kind == "graft") {
    const bool weights = TextAt(json, "what") == "weights";
    (weights ? weights_grafted_ : data_grafted_) = true;
    if (!weights && CountAt(json, "differs") > 0) {
      replaced_data_.insert(static_cast<int>(CountAt(json, "iteration")));
    }
  } else if (kind == "skipped_step") {
    SkippedStep& step =
        skipped_steps_[static_cast<int>(CountAt(json, "iteration"))];
    if (TrueAt(json, "cleared")) step.cleared_on.insert(rank);
  } else if (kind == "modules_beside") {
    models_beside_ = CountAt(json, "count");
  } else if (kind == "modules") {
    const auto classes = json.find("classes");
    if (classes == json.end() || !classes->is_object()) return;
    for (const auto& [fqn, name] : classes->items()) {
      if (name.is_string()) classes_.emplace(fqn, name.get<std::string>());
    }
  } else if (kind == "gradient_norms") {
    const auto norms = json.find("norms");
    if (norms == json.end() || !norms->is_object()) return;
    const auto iteration = static_cast<int>(CountAt(json, "iteration"));
    const auto rounded = json.find("rounded");
    for (const auto& [fqn, norm] : norms->items()) {
      if (!norm.is_number()) continue;
      GradientNorm& found = gradient_norms_[{rank, iteration, fqn}];
      found.norm = found.rounded = norm.get<double>();
      if (rounded == json.end() || !rounded->is_object()) continue;
      const auto own = rounded->find(fqn);
      if (own != rounded->end() && own->is_number()) {
        found.rounded = own->get<double>();
      }
    }
  } else if (kind == "precision_inside") {
    const auto dtype = ParseDType(TextAt(json, "dtype"));
    if (dtype && Info(*dtype).floating) {
      precision_inside_.emplace(TextAt(json, "fqn"), *dtype);
    }
  } else if (kind == "token_sums") {
    const auto each = [&](const char* key, const auto& keep) {
      const auto found = json.find(key);
      if (found == json.end() || !found->is_object()) return;
      for (const auto& [fqn, number] : found->items()) {
        if (number.is_number()) keep(fqn, number);
      }
    };
    each("norms", [&](const std::string& fqn, const Json& eps) {
      token_sums_.norms.emplace(fqn, eps.get<double>());
    });
    each("tables", [&](const std::string& fqn, const Json& padding) {
      if (!padding.is_number_integer()) return;
      token_sums_.tables.emplace(fqn, padding.get<int64_t>());
    });
  } else if (kind == "random_draws") {
    auto& draws = random_draws_[{static_cast<int>(CountAt(json, "iteration")),
                                 TextAt(json, "fqn")}];
    for (std::string& draw : TextsAt(json, "draws")) {
      draws.insert(std::move(draw));
    }
  } else if (kind == "loss_unit") {
    loss_unit_unknown_ = true;
  } else if (kind == "computation") {
    ComputationFact& fact = computation_[TextAt(json, "name")];
    fact.values[TextAt(json, "value")].push_back(rank);
    fact.option = TextAt(json, "option");
  }
}

const Side::GradientNorm* Side::FindGradientNorm(int rank, int iteration,
                                                 const std::string& fqn) const {
  const auto found = gradient_norms_.find({rank, iteration, fqn});
  return found == gradient_norms_.end() ? nullptr : &found->second;
}

std::string Side::ClassOf(const std::string& fqn) const {
  const auto found = classes_.find(fqn);
  return found == classes_.end() ? "" : found->second;
}

// A leg may be a launch and a folder of its own, so these are read from all.
void Side::ReadNotIsolated(const Trace& trace) {
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) {
      if (note.kind != "not_isolated") continue;
      const Json json = Json::parse(note.json, nullptr, false);
      if (!json.is_object()) continue;
      const auto role = ParseRole(TextAt(json, "role"));
      if (!role || !IsEdge(*role)) continue;
      not_isolated_.push_back({TextAt(json, "leg"),
                               static_cast<int>(CountAt(json, "iteration")),
                               TextAt(json, "fqn"), *role, TextAt(json, "arg"),
                               TextAt(json, "reason")});
    }
  }
}

}  // namespace ttrace
