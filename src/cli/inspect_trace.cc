#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "src/align/catalog.h"
#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/cli/inspect.h"
#include "src/experiment/gather_notes.h"
#include "src/experiment/leg_names.h"
#include "src/report/page.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

// A command line as one would type it; words with spaces are quoted.
std::string CommandText(const Json& words) {
  if (!words.is_array()) return "";
  std::string text;
  for (const Json& word : words) {
    if (!word.is_string()) continue;
    const auto& s = word.get_ref<const std::string&>();
    if (!text.empty()) text += ' ';
    const bool quote = s.empty() || s.find(' ') != std::string::npos;
    text += quote ? "\"" + s + "\"" : s;
  }
  return text;
}

std::string ValueText(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>()
                                                   : "";
}

std::string MeshText(const DeviceMesh& mesh) {
  std::string text;
  for (const MeshDim& dim : mesh.dims) {
    if (!text.empty()) text += ' ';
    text += dim.name + "=" + std::to_string(dim.size);
  }
  return text.empty() ? "none" : text;
}

void AddOrigin(const Trace& trace, Page& page) {
  page.Section("TRACE");
  page.Text(trace.folder());
  const Json manifest = ParseJson(trace.manifest_json());
  if (!manifest.is_object()) return;
  const std::string command =
      manifest.contains("command") ? CommandText(manifest["command"]) : "";
  if (!command.empty()) page.Text(command);
  const std::string made = ValueText(manifest, "created");
  if (!made.empty()) {
    page.Text(
        "recorded " + made + " by ttrace " + ValueText(manifest, "ttrace") +
        (manifest.contains("graft") ? ", with weights or data of a reference"
                                    : ""));
  }
}

void AddRanks(const Trace& trace, Page& page) {
  page.Section("RANKS");
  page.Text(std::to_string(trace.ranks().size()) + " of " +
            std::to_string(trace.world_size()) + ", mesh " +
            MeshText(trace.mesh()));
  for (int grid = 1; grid < trace.grid_count(); ++grid) {
    page.Text("seen also as " + MeshText(trace.mesh(grid)));
  }
  if (!trace.missing_ranks().empty()) {
    page.Text(
        "missing: " + FormatRanks(trace.missing_ranks(), trace.world_size()),
        Tone::kBad);
  }
  for (const RankTrace& rank : trace.ranks()) {
    const std::string who = "rank " + std::to_string(rank.meta.rank) + ": ";
    if (!rank.closed) {
      page.Text(who + "not closed: its process ended or is still writing",
                Tone::kBad);
    } else if (!rank.complete) {
      page.Text(who + "incomplete: " + rank.incomplete_reason, Tone::kBad);
    }
    if (rank.dropped_lines > 0) {
      page.Text(who + "its last index line is cut short", Tone::kDoubtful);
    }
  }
}

struct Amount {
  std::vector<bool> has;  // by number of the name
  int64_t tensors = 0;
  int64_t pieces = 0;
  int64_t bytes = 0;

  void Add(const Record& record) {
    const size_t number = record.id_number();
    if (number >= has.size()) has.resize(number + 1);
    if (!has[number]) ++tensors;
    has[number] = true;
    ++pieces;
    // What another record has written is there once.
    if (!record.same_as()) bytes += record.extent().bytes;
  }
};

void AddAmounts(const std::string& label,
                const std::map<std::string, Amount>& amounts, Page& page) {
  page.Section(label);
  std::vector<std::vector<std::string>> rows = {
      {"", "tensors", "pieces", "bytes"}};
  for (const auto& [name, amount] : amounts) {
    rows.push_back({Printable(name), FormatCount(amount.tensors),
                    FormatCount(amount.pieces),
                    FormatBytes(static_cast<double>(amount.bytes))});
  }
  page.Table(rows);
}

// As they were written: one of each kind.
void AddAllNotes(const Trace& trace, Page& page) {
  std::map<std::string, std::pair<int64_t, std::string>> kinds;
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) {
      auto& [count, example] = kinds[note.kind];
      if (count++ == 0) example = note.json;
    }
  }
  constexpr size_t kLongest = 160;
  for (const auto& [kind, note] : kinds) {
    page.Text(Printable(kind) + " x " + FormatCount(note.first) + ": " +
                  ShortenMiddle(Printable(note.second), kLongest),
              Tone::kPlain, 2);
  }
}

// What a reader of a verdict is told of them. The rest is for the check.
void AddNotes(const Trace& trace, Page& page) {
  int64_t others = 0;
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) {
      others += !NoteGatherer::Reads(note.kind);
    }
  }
  NoteGatherer gatherer;
  ForEachNoteIf(trace, &NoteGatherer::Reads,
                [&](const ParsedNote& note) { gatherer.Add(note); });
  const std::vector<RunNote> notes = std::move(gatherer).Finish("");
  for (const RunNote& note : notes) {
    page.Text(Printable(NoteWords(note)),
              note.leaves_verdict_open() ? Tone::kDoubtful : Tone::kPlain, 2);
  }
  if (notes.empty()) page.Text("nothing that needs attention");
  if (others > 0) {
    page.Text(Counted(others, "more note") + (others == 1 ? " is" : " are") +
              " for a check to read; --notes shows them");
  }
}

// Those that are no leg of this folder.
void AddLegFolders(const Trace& trace, Page& page) {
  std::string names;
  for (const std::string& folder : FindLegFolders(trace.folder())) {
    names += (names.empty() ? "" : ", ") +
             std::filesystem::path(folder).filename().string();
  }
  if (names.empty()) return;
  page.Text("by launches of their own, in legs/: " + Printable(names));
}

}  // namespace

std::string DescribeTrace(const Trace& trace, bool all_notes,
                          const TerminalOptions& terminal) {
  std::map<std::string, Amount> legs;
  std::map<std::string, Amount> roles;
  std::set<int> iterations;
  for (const Record& record : trace.records()) {
    iterations.insert(record.id().iteration);
    legs[record.leg().name()].Add(record);
    if (record.leg() == kReal) {
      roles[std::string(ToString(record.id().role))].Add(record);
    }
  }

  Page page(terminal.width, terminal.color);
  AddOrigin(trace, page);
  AddRanks(trace, page);
  page.Section("ITERATIONS");
  std::string list;
  for (const int iteration : iterations) {
    list += (list.empty() ? "" : ", ") + std::to_string(iteration);
  }
  page.Text(list.empty() ? "none: no tensor was captured" : list);
  if (!legs.empty()) AddAmounts("LEGS", legs, page);
  AddLegFolders(trace, page);
  if (!roles.empty()) AddAmounts("REAL LEG", roles, page);
  page.Section("NOTES");
  all_notes ? AddAllNotes(trace, page) : AddNotes(trace, page);
  return page.Take();
}

}  // namespace ttrace
