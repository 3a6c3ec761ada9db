#include "src/cli/summary_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/base/format.h"
#include "src/cli/progress_words.h"
#include "src/report/result_file.h"

namespace ttrace {
namespace {

using Line = std::array<std::string, 5>;

std::string VerdictWords(const std::string& verdict) {
  std::string words = verdict;
  std::replace(words.begin(), words.end(), '_', ' ');
  return Printable(words);
}

std::string Padded(const std::string& text, size_t columns) {
  return text + std::string(columns - std::min(columns, Columns(text)), ' ');
}

std::string Joined(const Line& line, const std::array<size_t, 5>& widths) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    if (i > 0) text += "  ";
    text += i + 1 < line.size() ? Padded(line[i], widths[i]) : line[i];
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

SummaryRow SummaryOf(const std::string& name, const std::string& folder,
                     int exit_code, double seconds) {
  SummaryRow row;
  row.name = name;
  row.seconds = seconds;
  row.exit_code = exit_code == 0 || exit_code == 1 ? exit_code : 2;
  row.verdict = "no result";
  const auto result = ReadResult(folder);
  if (folder.empty() || !result.ok()) {
    if (row.exit_code != 2 && !folder.empty()) {
      row.reason = result.error().message();
    }
    row.exit_code = 2;
    return row;
  }
  row.has_result = true;
  row.verdict = VerdictWords(result->verdict);
  // A command that broke down after all was captured, for one.
  if (row.exit_code == 2 && result->exit_code != 2) {
    row.verdict += ", but";
    row.reason = "its command failed";
  }
  if (row.exit_code == 2 && row.reason.empty()) {
    row.reason = Printable(result->reason);
  }
  if (!result->culprits.empty()) {
    const ResultFile::Place& place = result->culprits.front();
    row.first_place = Printable(place.fqn.empty() ? "the model" : place.fqn) +
                      " " + Printable(place.role);
    if (!place.classes.empty()) {
      row.bug_class = Printable(place.classes.front().letter + " " +
                                place.classes.front().name);
    }
  }
  return row;
}

std::string SummaryTable(const std::vector<SummaryRow>& rows, size_t width) {
  const Line head = {"EXPERIMENT", "VERDICT", "FIRST PLACE", "CLASS", "TIME"};
  std::array<size_t, 5> widths{};
  std::vector<Line> lines;
  for (const SummaryRow& row : rows) {
    lines.push_back({row.name, row.verdict, row.first_place, row.bug_class,
                     row.seconds > 0 ? DurationWords(row.seconds) : ""});
  }
  lines.insert(lines.begin(), head);
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], Columns(line[i]));
    }
  }
  // Only of a place the middle says little.
  constexpr size_t kPlace = 2;
  constexpr size_t kShortestPlace = 24;
  size_t all = 2 * (widths.size() - 1);
  for (const size_t one : widths) all += one;
  if (all > width) {
    const size_t others = all - widths[kPlace];
    widths[kPlace] =
        std::min(widths[kPlace],
                 std::max(kShortestPlace, width > others ? width - others : 0));
  }
  std::string text;
  for (Line& line : lines) {
    line[kPlace] = ShortenMiddle(line[kPlace], widths[kPlace]);
    text += Joined(line, widths);
  }
  for (const SummaryRow& row : rows) {
    if (row.reason.empty()) continue;
    for (const std::string& line : Wrap(row.name + ": " + row.reason, width)) {
      text += line + "\n";
    }
  }
  return text;
}

int WorstExitCode(const std::vector<SummaryRow>& rows) {
  const auto any = [&](int code) {
    return std::any_of(rows.begin(), rows.end(), [&](const SummaryRow& row) {
      return row.exit_code == code;
    });
  };
  return any(1) ? 1 : any(2) || rows.empty() ? 2 : 0;
}

}  // namespace ttrace
