#include "src/experiment/gather_notes.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "src/experiment/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

constexpr size_t kExamples = 3;

// One note for all that has the same kind and key; `names` are the distinct
// things that it is said of.
class Gatherer {
 public:
  explicit Gatherer(const Trace& trace) : folder_(trace.folder()) {}

  void Add(int rank, const std::string& kind, const Json& json) {
    if (kind == "graft") {
      AddGraft(rank, json);
    } else if (kind == "unsupported") {
      RunNote& note = At(NoteKind::kUnsupported, TextAt(json, "what"));
      note.names = {TextAt(json, "what")};
      note.reason = TextAt(json, "reason");
      note.way_out = TextAt(json, "way_out");
      AddRank(rank, &note);
    } else if (kind == "not_grafted") {
      Count(NoteKind::kNotGrafted, TextAt(json, "reason"), TextAt(json, "fqn"),
            json, rank);
    } else if (kind == "not_observed") {
      const std::string cls = TextAt(json, "class");
      RunNote& note =
          Count(NoteKind::kNotObserved, cls + '\n' + TextAt(json, "reason"),
                TextAt(json, "fqn"), json, rank);
      note.numbers.clear();
      classes_[&note] = cls;
    } else if (kind == "compiled") {
      Count(NoteKind::kCompiled, "", TextAt(json, "fqn"), json, rank);
    } else if (kind == "not_recorded") {
      Count(NoteKind::kNotRecorded, TextAt(json, "reason"),
            TextAt(json, "fqn") + " " + TextAt(json, "role") + " " +
                TextAt(json, "arg"),
            json, rank);
    } else if (kind == "not_isolated") {
      Count(NoteKind::kNotIsolated, TextAt(json, "reason"), TextAt(json, "fqn"),
            json, rank);
    } else if (kind == "leg_skipped") {
      // An fp32 run is its own fp32 leg: nothing is missing.
      if (TrueAt(json, "expected")) return;
      Count(NoteKind::kLegSkipped, TextAt(json, "reason"), TextAt(json, "leg"),
            json, rank);
    } else if (kind == "replay") {
      const auto leaks = json.find("leaks");
      if (leaks == json.end() || !leaks->is_array() || leaks->empty()) return;
      RunNote& note =
          At(NoteKind::kStateLeft, TextAt(json, "leg") + leaks->dump());
      note.names = {TextAt(json, "leg")};
      note.reason = leaks->dump();
    } else if (kind == "attribute") {
      Count(NoteKind::kAttribute,
            TextAt(json, "name") + " is " + TextAt(json, "value") +
                " where the topology expects " + TextAt(json, "expected"),
            TextAt(json, "fqn"), json, rank);
    } else if (kind == "skipped_step") {
      const NoteKind skipped = TrueAt(json, "cleared")
                                   ? NoteKind::kClearedGradients
                                   : NoteKind::kSkippedStep;
      RunNote& note = At(skipped, TextAt(json, "iteration"));
      note.numbers = {NumberAt(json, "iteration")};
      note.reason = TextAt(json, "reason");
      AddRank(rank, &note);
    } else if (kind == "stopped") {
      RunNote& note = At(NoteKind::kStopped, TextAt(json, "reason"));
      note.reason = TextAt(json, "reason");
      AddRank(rank, &note);
    } else if (kind == "notice") {
      RunNote& note = At(NoteKind::kNotice, TextAt(json, "text"));
      note.reason = TextAt(json, "text");
      AddRank(rank, &note);
    } else if (kind == "modules_beside") {
      RunNote& note = At(NoteKind::kModulesBeside, "");
      note.names = TextsAt(json, "classes");
      note.count = CountAt(json, "count");
    } else if (kind == "graft_begins" && TextAt(json, "of") == "inputs") {
      At(NoteKind::kGraftedInputs, "");
    }
  }

  std::vector<RunNote> Finish() {
    std::vector<RunNote> out;
    for (auto& [key, note] : notes_) {
      const auto things = things_.find(key);
      if (things != things_.end()) {
        note.count = static_cast<int64_t>(things->second.size());
        for (const std::string& name : things->second) {
          if (note.names.size() == kExamples &&
              note.kind != NoteKind::kLegSkipped) {
            break;
          }
          note.names.push_back(name);
        }
      }
      const auto cls = classes_.find(&note);
      if (cls != classes_.end()) {
        note.names.insert(note.names.begin(), cls->second);
      }
      out.push_back(std::move(note));
    }
    for (auto& [what, note] : grafts_) {
      if (note.numbers[1] > 0) out.push_back(std::move(note));
    }
    std::stable_sort(
        out.begin(), out.end(),
        [](const RunNote& a, const RunNote& b) { return a.kind < b.kind; });
    return out;
  }

 private:
  using Key = std::pair<NoteKind, std::string>;

  RunNote& At(NoteKind kind, const std::string& key) {
    RunNote& note = notes_[{kind, key}];
    note.kind = kind;
    note.folder = folder_;
    return note;
  }

  RunNote& Count(NoteKind kind, const std::string& key,
                 const std::string& thing, const Json& json, int rank) {
    RunNote& note = At(kind, key);
    note.reason = kind == NoteKind::kAttribute ? key : TextAt(json, "reason");
    if (note.way_out.empty()) note.way_out = TextAt(json, "way_out");
    things_[{kind, key}].insert(thing);
    AddRank(rank, &note);
    return note;
  }

  static void AddRank(int rank, RunNote* note) {
    auto at = std::lower_bound(note->ranks.begin(), note->ranks.end(), rank);
    if (at == note->ranks.end() || *at != rank) note->ranks.insert(at, rank);
  }

  // After a step of its own a run's weights always differ a little: an
  // optimizer amplifies rounding. Only where it starts is news.
  void AddGraft(int rank, const Json& json) {
    const auto iteration = static_cast<double>(CountAt(json, "iteration"));
    const std::string what = TextAt(json, "what");
    const auto [it, is_new] = grafts_.try_emplace(what);
    RunNote& note = it->second;
    if (is_new || iteration < note.numbers[0]) {
      note = RunNote{};
      note.kind = NoteKind::kGraftDiffers;
      note.folder = folder_;
      note.names = {what};
      note.numbers = {iteration, 0, 0};
    }
    if (iteration != note.numbers[0]) return;
    const auto differs = static_cast<double>(CountAt(json, "differs"));
    if (differs == 0) return;
    AddRank(rank, &note);
    note.numbers[2] =
        std::max(note.numbers[2], static_cast<double>(CountAt(json, "of")));
    if (differs > note.numbers[1]) {
      note.numbers[1] = differs;
      note.names = {what};
      for (std::string& example : TextsAt(json, "examples")) {
        note.names.push_back(std::move(example));
      }
    }
  }

  std::string folder_;
  std::map<Key, RunNote> notes_;
  std::map<Key, std::set<std::string>> things_;
  std::map<const RunNote*, std::string> classes_;
  std::map<std::string, RunNote> grafts_;
};

}  // namespace

std::vector<RunNote> GatherNotes(const Trace& trace) {
  Gatherer gatherer(trace);
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) {
      const Json json = Json::parse(note.json, nullptr, false);
      if (json.is_object()) gatherer.Add(rank.meta.rank, note.kind, json);
    }
  }
  return gatherer.Finish();
}

}  // namespace ttrace
