// What was compared, what was not and why, the two sides, and the notes.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/report/html/html_text.h"
#include "src/report/html/sections.h"

namespace ttrace {
namespace {

constexpr size_t kMostNotes = 200;
constexpr size_t kMostReasons = 20;

std::string CountRow(int64_t count, const std::string& words) {
  return fmt::format("<tr><td class=num>{}<td>{}", FormatCount(count), words);
}

std::string SideRow(const char* name, const ResultFile::Side& side) {
  std::string legs;
  for (const std::string& leg : side.legs) {
    legs += (legs.empty() ? "" : ", ") + HtmlText(leg);
  }
  return fmt::format("<tr><th scope=row>{}<td>{}<td>{}, {}<td>{}", name,
                     HtmlText(side.folder), HtmlText(side.mesh),
                     Counted(side.world_size, "rank"), legs);
}

std::string CoverageCounts(const ResultFile& result) {
  int64_t total =
      result.compared + result.reference_only + result.candidate_only;
  std::string rows = CountRow(
      result.compared,
      result.has_reference ? "compared" : "examined, without a reference");
  if (result.has_reference) {
    rows +=
        CountRow(result.reference_only, "only in the reference, unexplained");
    rows +=
        CountRow(result.candidate_only, "only in the candidate, unexplained");
  }
  auto explained = result.explained;
  std::stable_sort(
      explained.begin(), explained.end(),
      [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [reason, count] : explained) {
    rows += CountRow(count, "excused: " + HtmlText(reason));
    total += count;
  }
  return fmt::format("<h3>{}</h3><table class=\"small reasons\">{}</table>",
                     Counted(total, "tensor"), rows);
}

std::string RunFacts(const ResultFile& result) {
  std::string iterations;
  for (const int64_t iteration : result.iterations) {
    iterations += (iterations.empty() ? "" : ", ") + std::to_string(iteration);
  }
  std::string out = fmt::format(
      "<p class=muted>Iterations {}; {} of both sides read in {}; {}",
      iterations.empty() ? "none" : HtmlText(iterations),
      FormatBytes(static_cast<double>(result.bytes_compared)),
      FormatSeconds(result.seconds), Counted(result.tests, "test"));
  if (result.risk > 0) {
    out += fmt::format("; a clean run is flagged by chance in {} of cases",
                       HtmlError(result.risk));
  }
  if (result.bitwise) out += "; compared bit for bit";
  out += ".</p>";
  if (result.isolation) {
    const ResultFile::Isolation& alone = *result.isolation;
    out += fmt::format(
        "<p class=muted>Isolated: {} of {} tensors judged; {} faulty, {} of "
        "them hidden end to end; {} disputed; {} that are not checkable end "
        "to end.</p>",
        FormatCount(alone.judged), FormatCount(alone.of),
        Counted(alone.faulty, "place"), FormatCount(alone.hidden),
        FormatCount(alone.disputed), FormatCount(alone.rescued));
  }
  if (result.routing) {
    const ResultFile::Routing& routing = *result.routing;
    out += fmt::format(
        "<p class=muted>Routing: {} decisions, {} differ, {} of them within "
        "round-off.</p>",
        FormatCount(routing.tokens), FormatCount(routing.otherwise),
        FormatCount(routing.tied));
  }
  return out;
}

std::string CoverageNotes(const ResultFile& result) {
  if (result.notes.empty()) return "<p class=muted>None.</p>";
  std::string rows;
  for (size_t i = 0; i < std::min(result.notes.size(), kMostNotes); ++i) {
    std::string kind = result.notes[i].kind;
    std::replace(kind.begin(), kind.end(), '_', ' ');
    rows += "<tr><th scope=row>" + HtmlText(kind) + "<td>" +
            HtmlText(result.notes[i].text);
  }
  std::string more;
  if (result.notes.size() > kMostNotes) {
    more = fmt::format(
        "<p class=muted>{} more are in result.json.</p>",
        FormatCount(static_cast<int64_t>(result.notes.size() - kMostNotes)));
  }
  return "<table class=\"small notes\">" + rows + "</table>" + more;
}

// Reasons that differ in their numbers are one reason.
std::string WithoutNumbers(const std::string& reason) {
  std::string out;
  for (size_t i = 0; i < reason.size(); ++i) {
    const auto is_digit = [&](size_t k) {
      return k < reason.size() && reason[k] >= '0' && reason[k] <= '9';
    };
    const bool inside = !out.empty() && out.back() == '#';
    if (is_digit(i)) {
      if (!inside) out += '#';
    } else if (inside && ((reason[i] == '.' && is_digit(i + 1)) ||
                          (reason[i] == 'e' && i + 2 < reason.size() &&
                           (reason[i + 1] == '-' || reason[i + 1] == '+') &&
                           is_digit(i + 2)))) {
      if (reason[i] == 'e') ++i;
    } else {
      out += reason[i];
    }
  }
  return out;
}

// Tensors that were not decided, by what is said of them.
struct Undecided {
  std::string reason;  // of the first
  int64_t count = 0;
  bool varies = false;  // others have other numbers
  std::vector<size_t> examples;
};

}  // namespace

std::string UndecidedHtml(const ReportModel& model) {
  constexpr size_t kExamples = 3;
  std::map<std::string, Undecided> by_reason;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    if (model.severity[i] != Severity::kNotCheckable &&
        model.severity[i] != Severity::kOneSide) {
      continue;
    }
    const ResultFile::Tensor& tensor = *model.tensors[i];
    const std::string& reason =
        tensor.reason.empty() ? tensor.verdict : tensor.reason;
    const auto [one, fresh] = by_reason.try_emplace(WithoutNumbers(reason));
    if (fresh) one->second.reason = reason;
    one->second.varies |= reason != one->second.reason;
    ++one->second.count;
    if (one->second.examples.size() < kExamples) {
      one->second.examples.push_back(i);
    }
  }
  if (by_reason.empty()) return "";
  std::vector<std::pair<std::string, Undecided>> rows(by_reason.begin(),
                                                      by_reason.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.count > b.second.count;
  });
  std::string out =
      "<table class=\"small reasons\"><thead><tr><th scope=col "
      "class=num>tensors<th "
      "scope=col>could not be decided, because<th scope=col>for example"
      "</thead><tbody>";
  for (size_t i = 0; i < std::min(rows.size(), kMostReasons); ++i) {
    const Undecided& one = rows[i].second;
    out += fmt::format("<tr><td class=num>{}<td>{}{}<td>",
                       FormatCount(one.count), HtmlText(one.reason),
                       one.varies ? ", or another number" : "");
    for (const size_t example : one.examples) {
      const ResultFile::Tensor& tensor = *model.tensors[example];
      out += fmt::format(
          "<a class=name href=\"{}\">{}</a> <code>{} {}</code>"
          "<br>",
          FragmentOf(tensor), HtmlName(tensor.fqn), HtmlText(tensor.role),
          HtmlText(tensor.arg));
    }
  }
  out += "</table>";
  if (rows.size() > kMostReasons) {
    out += fmt::format("<p class=muted>and {} more reasons</p>",
                       rows.size() - kMostReasons);
  }
  return out;
}

std::string CoverageHtml(const ReportModel& model) {
  const ResultFile& result = *model.result;
  std::string sides = SideRow("candidate", result.candidate);
  if (result.has_reference) sides += SideRow("reference", result.reference);
  // Of an inconclusive result that is at the top.
  const std::string undecided =
      result.verdict == "inconclusive" ? "" : UndecidedHtml(model);
  return "<div class=two><div>" + CoverageCounts(result) +
         "</div><div><h3>Sides</h3><table class=\"small sides\">" + sides +
         "</table>" + RunFacts(result) + "</div></div>" +
         (undecided.empty() ? "" : "<h3>Not decided</h3>" + undecided) +
         "<h3>Notes</h3>" + CoverageNotes(result);
}

}  // namespace ttrace
