#include "src/experiment/gather_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/count_words.h"
#include "src/base/rank_words.h"
#include "src/trace/note_json.h"

namespace ttrace {

// Not unnamed: where files are compiled together, a field of an unnamed
// namespace's type is warned of.
namespace gathered {

constexpr size_t kExamples = 3;

// What ranks, legs or iterations say alike.
struct Group {
  std::string reason;
  std::string way_out;
  std::set<std::string> things;  // that it is said of
  std::set<int> ranks;           // that say it

  std::string Count(const char* noun) const {
    return Counted(static_cast<int64_t>(things.size()), noun);
  }
  std::string Names() const {
    std::vector<std::string> names(things.begin(), things.end());
    if (names.size() > kExamples) names.resize(kExamples);
    return Examples(names, static_cast<int64_t>(things.size()));
  }
  std::string Ranks() const { return RankWords({ranks.begin(), ranks.end()}); }
};

std::string Words(NoteKind kind, const Group& of) {
  switch (kind) {
    case NoteKind::kNotGrafted:
      return fmt::format("{} kept the candidate's own values ({}): {}",
                         of.Count("tensor"), of.Names(), of.reason);
    case NoteKind::kCompiled:
      return fmt::format("{} compiled ({}): their interior is not observed",
                         of.Count("region"), of.Names());
    case NoteKind::kNotRecorded:
      return fmt::format("{} not recorded ({}): {}", of.Count("tensor"),
                         of.Names(), of.reason);
    case NoteKind::kNotIsolated:
      return fmt::format("{} could not be isolated ({}): {}",
                         of.Count("module"), of.Names(), of.reason);
    case NoteKind::kLegSkipped:
      return fmt::format("{} {} skipped: {}",
                         of.things.size() == 1 ? "leg" : "legs",
                         fmt::join(of.things, ", "), of.reason);
    case NoteKind::kStateLeft:
      return fmt::format("leg {} left state behind: {}", *of.things.begin(),
                         of.reason);
    case NoteKind::kAttribute:
      return fmt::format("{} ({}): {}", of.Count("parameter"), of.Names(),
                         of.reason);
    case NoteKind::kSkippedStep:
    case NoteKind::kClearedGradients:
      return fmt::format("iteration {}: the optimizer's step was skipped ({})",
                         *of.things.begin(), of.reason);
    case NoteKind::kStopped:
      return fmt::format("{}: capture stopped: {}", of.Ranks(), of.reason);
    case NoteKind::kNotice:
      return fmt::format("{}: {}", of.Ranks(), of.reason);
    default:
      return of.reason;
  }
}

// How many values of a run's own differed from the reference's. After a step of
// its own a run's weights always differ a little: an optimizer amplifies
// rounding. Only where it starts is news.
struct Grafted {
  int64_t iteration = 0;
  int64_t differing = 0;  // on the rank with the most
  int64_t of = 0;
  std::vector<std::string> examples;
  std::set<int> ranks;
};

}  // namespace gathered

class NoteGatherer::Groups {
  using Json = nlohmann::json;
  using Group = gathered::Group;
  using Grafted = gathered::Grafted;

 public:
  // What is said of notes of `kind`; null: nothing.
  using Adds = void (Groups::*)(int rank, const Json&);
  static Adds AddsOf(const std::string& kind) {
    static const auto& of_kind = *new std::map<std::string_view, Adds>{
        {"graft", &Groups::AddGraft},
        {"unsupported", &Groups::AddUnsupported},
        {"not_grafted", &Groups::AddNotGrafted},
        {"compiled", &Groups::AddCompiled},
        {"not_recorded", &Groups::AddNotRecorded},
        {"not_isolated", &Groups::AddNotIsolated},
        {"leg_skipped", &Groups::AddLegSkipped},
        {"replay", &Groups::AddLeaks},
        {"attribute", &Groups::AddAttribute},
        {"skipped_step", &Groups::AddSkippedStep},
        {"gradients_cleared", &Groups::AddGradientsCleared},
        {"stopped", &Groups::AddStopped},
        {"notice", &Groups::AddNotice},
        {"modules_beside", &Groups::AddModulesBeside},
        {"graft_begins", &Groups::AddGraftBegins}};
    const auto found = of_kind.find(kind);
    return found == of_kind.end() ? nullptr : found->second;
  }

  std::vector<RunNote> Finish(const std::string& folder) {
    std::vector<RunNote> out;
    for (auto& [what, why] : unsupported_) {
      out.push_back(Unsupported(what, why.first, why.second));
    }
    for (const auto& [key, group] : groups_) {
      out.push_back(
          {key.first, gathered::Words(key.first, group), group.way_out});
    }
    if (!beside_.empty())
      out.push_back({NoteKind::kModulesBeside, beside_, ""});
    for (const auto& [what, graft] : grafts_) {
      if (graft.differing > 0) out.push_back(NoteOf(what, graft));
    }
    std::stable_sort(
        out.begin(), out.end(),
        [](const RunNote& a, const RunNote& b) { return a.kind < b.kind; });
    for (RunNote& note : out) note.folder = folder;
    return out;
  }

 private:
  // By kind and reason.
  Group& At(NoteKind kind, const std::string& reason, int rank) {
    Group& group = groups_[{kind, reason}];
    group.reason = reason;
    group.ranks.insert(rank);
    return group;
  }

  void AddThing(NoteKind kind, const std::string& thing, int rank,
                const Json& json) {
    Group& group = At(kind, TextAt(json, "reason"), rank);
    group.things.insert(thing);
    if (group.way_out.empty()) group.way_out = TextAt(json, "way_out");
  }

  void AddUnsupported(int, const Json& json) {
    unsupported_.try_emplace(TextAt(json, "what"), TextAt(json, "reason"),
                             TextAt(json, "way_out"));
  }

  void AddNotGrafted(int rank, const Json& json) {
    AddThing(NoteKind::kNotGrafted, TextAt(json, "fqn"), rank, json);
  }

  void AddCompiled(int rank, const Json& json) {
    At(NoteKind::kCompiled, "", rank).things.insert(TextAt(json, "fqn"));
  }

  void AddNotRecorded(int rank, const Json& json) {
    AddThing(NoteKind::kNotRecorded,
             TextAt(json, "fqn") + " " + TextAt(json, "role") + " " +
                 TextAt(json, "arg"),
             rank, json);
  }

  void AddNotIsolated(int rank, const Json& json) {
    AddThing(NoteKind::kNotIsolated, TextAt(json, "fqn"), rank, json);
  }

  // An fp32 run is its own fp32 leg: nothing is missing.
  void AddLegSkipped(int rank, const Json& json) {
    if (TrueAt(json, "expected")) return;
    AddThing(NoteKind::kLegSkipped, TextAt(json, "leg"), rank, json);
  }

  void AddAttribute(int rank, const Json& json) {
    At(NoteKind::kAttribute,
       fmt::format("{} is {} where the topology expects {}",
                   TextAt(json, "name"), TextAt(json, "value"),
                   TextAt(json, "expected")),
       rank)
        .things.insert(TextAt(json, "fqn"));
  }

  void AddStopped(int rank, const Json& json) {
    At(NoteKind::kStopped, TextAt(json, "reason"), rank);
  }

  void AddNotice(int rank, const Json& json) {
    At(NoteKind::kNotice, TextAt(json, "text"), rank);
  }

  void AddGraftBegins(int rank, const Json& json) {
    if (TextAt(json, "of") != "inputs") return;
    At(NoteKind::kGraftedInputs,
       "there is no data iterator to replace items of: the model's own inputs "
       "are replaced by the reference's",
       rank);
  }

  void AddLeaks(int rank, const Json& json) {
    const auto leaks = json.find("leaks");
    if (leaks == json.end() || !leaks->is_array() || leaks->empty()) return;
    const std::string leg = TextAt(json, "leg");
    Group& group = groups_[{NoteKind::kStateLeft, leg + JsonText(*leaks)}];
    group.reason = JsonText(*leaks);
    group.things = {leg};
    group.ranks.insert(rank);
  }

  void AddSkippedStep(int rank, const Json& json) {
    const NoteKind kind = TrueAt(json, "cleared") ? NoteKind::kClearedGradients
                                                  : NoteKind::kSkippedStep;
    const std::string iteration = TextAt(json, "iteration");
    Group& group = groups_[{kind, iteration}];
    group.reason = TextAt(json, "reason");
    group.things = {iteration};
    group.ranks.insert(rank);
  }

  void AddGradientsCleared(int rank, const Json& json) {
    At(NoteKind::kNotice,
       fmt::format("iteration {}: the loop clears gradients after {}, before "
                   "the step",
                   TextAt(json, "iteration"),
                   Counted(CountAt(json, "micro_batches"), "micro-batch")),
       rank);
  }

  void AddModulesBeside(int, const Json& json) {
    const int64_t count = CountAt(json, "count");
    const std::vector<std::string> classes = TextsAt(json, "classes");
    beside_ = fmt::format(
        "{} beside the model {} not compared: {} of it or of a part of it "
        "({}), as an average of the weights or a teacher",
        Counted(count, "module"), count == 1 ? "is" : "are",
        count == 1 ? "a copy" : "copies",
        Examples(classes, static_cast<int64_t>(classes.size())));
  }

  void AddGraft(int rank, const Json& json) {
    const int64_t iteration = CountAt(json, "iteration");
    const auto [it, is_new] = grafts_.try_emplace(TextAt(json, "what"));
    Grafted& graft = it->second;
    if (is_new || iteration < graft.iteration)
      graft = {iteration, 0, 0, {}, {}};
    if (iteration != graft.iteration) return;
    const int64_t differing = CountAt(json, "differs");
    if (differing == 0) return;
    graft.ranks.insert(rank);
    graft.of = std::max(graft.of, CountAt(json, "of"));
    if (differing > graft.differing) {
      graft.differing = differing;
      graft.examples = TextsAt(json, "examples");
    }
  }

  static RunNote NoteOf(const std::string& what, const Grafted& graft) {
    return {NoteKind::kGraftDiffers,
            fmt::format(
                "iteration {}: its own {} differed from the reference's in up "
                "to {} of {} tensors of a rank ({}) and were replaced ({})",
                graft.iteration, what, graft.differing, graft.of,
                RankWords({graft.ranks.begin(), graft.ranks.end()}),
                Examples(graft.examples, 0)),
            ""};
  }

  std::map<std::string, std::pair<std::string, std::string>> unsupported_;
  std::map<std::pair<NoteKind, std::string>, Group> groups_;
  std::map<std::string, Grafted> grafts_;
  std::string beside_;
};

NoteGatherer::NoteGatherer() : groups_(std::make_unique<Groups>()) {}
NoteGatherer::~NoteGatherer() = default;

bool NoteGatherer::Reads(const std::string& kind) {
  return Groups::AddsOf(kind) != nullptr;
}

void NoteGatherer::Add(const ParsedNote& note) {
  const Groups::Adds adds = Groups::AddsOf(note.kind);
  if (adds != nullptr) (*groups_.*adds)(note.rank, note.json);
}

std::vector<RunNote> NoteGatherer::Finish(const std::string& folder) && {
  return groups_->Finish(folder);
}

}  // namespace ttrace
