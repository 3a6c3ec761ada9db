// GitHub's Markdown (https://github.github.com/gfm/). What comes from files
// stands in code spans and fenced blocks alone, where nothing of it is markup,
// a link or somebody's name.

#include <fmt/format.h>

#include <algorithm>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/report/exports/exports.h"
#include "src/report/exports/place_words.h"

namespace ttrace {
namespace {

constexpr size_t kMaxPlaces = 5;
constexpr size_t kMaxNotesShown = 20;
constexpr size_t kLongestName = 200;  // in code points

// One backtick more than `text` has in a row.
std::string Fence(std::string_view text, size_t least) {
  size_t longest = 0;
  size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return std::string(std::max(least, longest + 1), '`');
}

// A code span. A bar ends a table's cell even in one.
std::string Code(const std::string& text) {
  std::string shown = ShortenMiddle(Printable(text), kLongestName);
  std::replace(shown.begin(), shown.end(), '|', '/');
  const std::string fence = Fence(shown, 1);
  const bool ticks = fence.size() > 1;
  if (shown.empty()) shown = "-";
  return fence + (ticks ? " " : "") + shown + (ticks ? " " : "") + fence;
}

std::string Block(const char* language, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const std::string fence = Fence(text, 3);
  return fence + language + "\n" + text + fence + "\n";
}

std::string Details(const std::string& summary, const std::string& inside) {
  return "<details><summary>" + summary + "</summary>\n\n" + inside +
         "\n</details>\n";
}

std::string MarkdownOf(const ResultFile::Place& place) {
  std::string out = Code(PlaceName(place.fqn)) + " " + Code(PlaceTitle(place));
  if (!place.source_file.empty()) {
    out += " at " +
           Code(fmt::format("{}:{}", place.source_file, place.source_line));
  }
  return out + "\n\n" + Block("text", PlaceLines(place)) + "\n";
}

std::string PlacesText(const ResultFile& result) {
  if (result.culprits.empty()) return "";
  std::string out = "**First place:** " + MarkdownOf(result.culprits.front());
  std::string more;
  for (size_t i = 1; i < std::min(result.culprits.size(), kMaxPlaces); ++i) {
    more += MarkdownOf(result.culprits[i]);
  }
  if (result.culprits.size() > kMaxPlaces) {
    more += fmt::format("and {} more in `result.json`\n",
                        result.culprits.size() - kMaxPlaces);
  }
  if (!more.empty()) {
    out += Details(Counted(static_cast<int64_t>(result.culprits.size()) - 1,
                           "later place"),
                   more) +
           "\n";
  }
  if (result.downstream > 0) {
    out += Counted(result.downstream, "tensor") +
           " out of bounds downstream of these.\n\n";
  }
  return out;
}

std::string CountsTable(const ResultFile& result) {
  if (result.clean.empty()) return "";
  std::string out = "| | clean | of |\n|---|--:|--:|\n";
  for (const ResultFile::Kind& kind : result.clean) {
    out += fmt::format("| {} | {} | {} |\n", Code(kind.kind),
                       FormatCount(kind.clean), FormatCount(kind.of));
  }
  return out + "\n";
}

std::string SidesText(const ResultFile& result) {
  std::string out =
      Counted(result.compared, "tensor") +
      (result.has_reference ? " compared" : " examined, without a reference");
  const int64_t alone = result.reference_only + result.candidate_only;
  if (alone > 0) out += ", " + FormatCount(alone) + " without a partner";
  out += ". Candidate " + Code(result.candidate.mesh);
  if (result.has_reference) out += ", reference " + Code(result.reference.mesh);
  return out + ".\n\n";
}

std::string Commands(const ResultFile& result) {
  if (result.next_steps.empty()) return "";
  std::vector<std::string> lines;
  for (const std::string& step : result.next_steps) {
    lines.push_back(Printable(step));
  }
  return "**Next**\n\n" + Block("text", lines) + "\n";
}

std::string NotesText(const ResultFile& result) {
  if (result.notes.empty()) return "";
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(result.notes.size(), kMaxNotesShown); ++i) {
    lines.push_back("- " + Printable(result.notes[i].text));
  }
  if (result.notes.size() > kMaxNotesShown) {
    lines.push_back(fmt::format("and {} more in result.json",
                                result.notes.size() - kMaxNotesShown));
  }
  return Details(Counted(static_cast<int64_t>(result.notes.size()), "note"),
                 Block("text", lines));
}

}  // namespace

std::string RenderMarkdown(const ResultFile& result) {
  std::string verdict = result.verdict;  // one of four words of ours
  std::replace(verdict.begin(), verdict.end(), '_', ' ');
  std::string out = "### TTrace: " + verdict + "\n\n";
  out += Block("text", {Printable(result.reason)}) + "\n";
  out += PlacesText(result);
  out += CountsTable(result);
  out += SidesText(result);
  out += Commands(result);
  return out + NotesText(result);
}

}  // namespace ttrace
