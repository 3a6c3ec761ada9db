#include "src/experiment/side.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "src/base/count_words.h"
#include "src/base/rank_words.h"
#include "src/experiment/gather_notes.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

// In notes.
std::string HookWords(const ReductionHook& hook) {
  const std::string who = hook.name.empty()
                              ? "the loop itself"
                              : "a communication hook, " + hook.name;
  if (hook.why_unknown.empty()) {
    return fmt::format(
        "gradients are reduced by {}, which sends {}: reduced gradients are "
        "judged with that rounding",
        who, hook.sends ? Info(*hook.sends).torch_name : "");
  }
  return fmt::format(
      "gradients are reduced by {}, in a precision that is not known ({}): "
      "reduced gradients are not compared with the reference's",
      who, hook.why_unknown);
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
                       return rank.Completed(iteration, kReal);
                     });
}

const TensorPieces* Side::Find(const Leg& leg, const TensorId& id) const {
  // A leg that a rank did not end may lack anything. Of the real one, what is
  // whole by itself still says something.
  if (leg != kReal && cut_legs_.contains({leg, id.iteration})) return nullptr;
  if (!Keeps(leg)) return nullptr;
  for (const auto& catalog : catalogs_) {
    if (const TensorPieces* found = catalog->Find(leg, id)) return found;
  }
  return nullptr;
}

const TensorPieces* Side::FindSameValue(const Leg& leg, TensorId id) const {
  if (const TensorPieces* found = Find(leg, id)) return found;
  if (id.pass != Pass::kRecompute) return nullptr;
  id.pass = Pass::kForward;
  return Find(leg, id);
}

void Side::KeepLegs(const std::vector<Leg>& reruns) {
  kept_reruns_.emplace(reruns.begin(), reruns.end());
}

bool Side::Keeps(const Leg& leg) const {
  return !kept_reruns_ || leg == kReal || kept_reruns_->contains(leg);
}

void Side::Reread(const TensorId& id,
                  const std::function<void(RecordFields*)>& change) {
  for (const auto& catalog : catalogs_) catalog->Reread(id, change);
}

std::vector<Leg> Side::Legs() const {
  std::set<Leg> legs;
  for (const auto& catalog : catalogs_) {
    std::copy_if(catalog->legs().begin(), catalog->legs().end(),
                 std::inserter(legs, legs.end()),
                 [&](const Leg& leg) { return Keeps(leg); });
  }
  return {legs.begin(), legs.end()};
}

bool Side::HasLeg(const Leg& leg) const {
  return Keeps(leg) &&
         std::any_of(catalogs_.begin(), catalogs_.end(),
                     [&](const auto& c) { return c->HasLeg(leg); });
}

bool Side::LegCompleted(const Catalog& catalog, const Leg& leg, int iteration) {
  const auto& ranks = catalog.trace().ranks();
  return catalog.trace().missing_ranks().empty() &&
         std::all_of(ranks.begin(), ranks.end(), [&](const RankTrace& rank) {
           return rank.Completed(iteration, leg);
         });
}

std::vector<Leg> Side::NoiseLegsOf(const Leg& plain) const {
  std::vector<Leg> out;
  for (const Leg& leg : Legs()) {
    if (leg.IsNoiseOf(plain)) out.push_back(leg);
  }
  return out;
}

std::optional<DType> Side::ComputeDType() const {
  std::optional<DType> lowest;
  const auto admit = [&](DType dtype) {
    if (!lowest || UnitRoundoff(dtype) > UnitRoundoff(*lowest)) lowest = dtype;
  };
  for (const auto& [module, dtype] : facts_.precision_inside) admit(dtype);
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

std::set<int> Side::RecordedIterations() const {
  std::set<int> out;
  for (const auto& [id, pieces] : real()) out.insert(id.iteration);
  return out;
}

int Side::MicroBatchesPerRank() const {
  std::map<std::pair<int, int>, std::set<int>> seen;  // (rank, iteration)
  for (const Record& record : trace().records()) {
    if (record.leg() == kReal && record.micro_batch() >= 0) {
      seen[{record.rank(), record.id().iteration}].insert(record.micro_batch());
    }
  }
  size_t most = 1;
  for (const auto& [key, batches] : seen) most = std::max(most, batches.size());
  return static_cast<int>(most);
}

// Of gradients that are rounded to what they are sent in.
void Side::ReadTermsOfReductions() {
  if (!facts_.reduction_hook || !facts_.reduction_hook->sends) return;
  for (const auto& [id, pieces] : real()) {
    if (id.role != Role::kGradLocal) continue;
    const DType recorded = pieces.pieces.front().dtype();
    if (UnitRoundoff(*facts_.reduction_hook->sends) <= UnitRoundoff(recorded)) {
      continue;
    }
    facts_.reduction_hook->terms[id] = TermsOverSum(pieces);
  }
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
  for (const Leg& leg : catalog.legs()) {
    if (leg == kReal) continue;
    std::set<int> iterations;
    for (const auto& [id, pieces] : catalog.tensors(leg)) {
      iterations.insert(id.iteration);
    }
    for (const int iteration : iterations) {
      if (LegCompleted(catalog, leg, iteration)) continue;
      cut_legs_.insert({leg, iteration});
      cut.insert(leg.name());
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
  facts_ = ReadRunFacts(trace);
  NoteGatherer gatherer;
  // Several kinds are read by both.
  ForEachNoteIf(
      trace,
      [](const std::string& kind) {
        return MakesRunFact(kind) || NoteGatherer::Reads(kind);
      },
      [&](const ParsedNote& note) {
        AddRunFact(note, &facts_);
        gatherer.Add(note);
      });
  std::vector<RunNote> notes = std::move(gatherer).Finish(trace.folder());
  notes_.insert(notes_.end(), std::make_move_iterator(notes.begin()),
                std::make_move_iterator(notes.end()));
  if (facts_.reduction_hook) {
    notes_.push_back({NoteKind::kReductionHook,
                      HookWords(*facts_.reduction_hook), "", trace.folder()});
  }
  const auto malformed = [&](int64_t count, const char* of) {
    if (count == 0) return;
    notes_.push_back(
        {NoteKind::kMalformed,
         fmt::format("{} of {} unreadable", Counted(count, "note"), of), "",
         trace.folder()});
  };
  malformed(facts_.collectives.malformed, "collectives");
  malformed(facts_.state_changes.malformed, "found states");
  malformed(facts_.early_reductions.malformed, "early reductions");
  malformed(facts_.cleared_gradients.malformed, "cleared gradients");
}

// A leg may be a launch and a folder of its own, so these are read from all.
void Side::ReadNotIsolated(const Trace& trace) {
  ForEachNote(trace, {"not_isolated"}, [&](const ParsedNote& note) {
    const auto& json = note.json;
    const auto role = ParseRole(TextAt(json, "role"));
    if (!role || !IsEdge(*role)) return;
    not_isolated_.push_back({Leg(TextAt(json, "leg")),
                             static_cast<int>(CountAt(json, "iteration")),
                             TextAt(json, "fqn"), *role, TextAt(json, "arg"),
                             TextAt(json, "reason")});
  });
}

}  // namespace ttrace
