// Several results on one page: what each says, and what changed between them.
// Plain HTML: a box that hides unchanged rows needs no script.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/report/html/frame.h"
#include "src/report/html/html.h"
#include "src/report/html/html_text.h"
#include "src/report/html/sections.h"

namespace ttrace {
namespace {

constexpr size_t kMostMatrixRows = 600;

using NamedResults = std::vector<std::pair<std::string, ResultFile>>;

// "A", "B", ..., then "27": a column must be narrow.
std::string ColumnLetter(size_t i) {
  return i < 26 ? std::string(1, static_cast<char>('A' + i))
                : std::to_string(i + 1);
}

// The own report of a result, as text: the page links to nothing.
std::string OwnReport(const std::string& path) {
  constexpr std::string_view kFile = "result.json";
  const size_t name =
      path.size() < kFile.size() ? 0 : path.size() - kFile.size();
  if (std::string_view(path).substr(name) == kFile) {
    return path.substr(0, name) + "index.html";
  }
  return path.ends_with(".json") ? "" : path + "/index.html";
}

std::string ClosestWords(const ReportModel& model) {
  double closest = -1;
  size_t at = 0;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const std::string& verdict = model.tensors[i]->verdict;
    const double headroom = model.tensors[i]->headroom;
    if ((verdict == "within" || verdict == "suspect") && headroom > closest) {
      closest = headroom;
      at = i;
    }
  }
  if (closest < 0) return "&ndash;";
  return HtmlHeadroom(closest) + " <code>" + HtmlName(model.tensors[at]->fqn) +
         "</code> " + HtmlText(model.tensors[at]->role);
}

std::string FirstWords(const ResultFile& result) {
  if (result.culprits.empty()) return HtmlText(result.reason);
  const ResultFile::Place& place = result.culprits.front();
  std::string out =
      fmt::format("<code>{}</code> {}, {}, {}, iteration {}",
                  HtmlName(place.fqn), HtmlText(place.direction),
                  HtmlText(place.stage), HtmlText(place.role), place.iteration);
  if (result.culprits.size() > 1) {
    out += fmt::format("; and {}",
                       Counted(static_cast<int64_t>(result.culprits.size()) - 1,
                               "more place"));
  }
  return out;
}

std::string ResultsTable(const NamedResults& results,
                         const std::vector<ReportModel>& models) {
  std::string out =
      "<div class=scroll><table class=small><thead><tr><th scope=col><th "
      "scope=col>result<th scope=col>verdict<th scope=col>first place<th "
      "scope=col>class<th scope=col class=num>out<th scope=col>clean<th "
      "scope=col>closest that is clean</thead><tbody>";
  for (size_t i = 0; i < results.size(); ++i) {
    const ResultFile& result = results[i].second;
    const Headline headline = HeadlineOf(result.verdict);
    std::string letters;
    if (!result.culprits.empty()) {
      for (const ResultFile::Class& one : result.culprits.front().classes) {
        letters += "<b class=letter>" + HtmlText(one.letter) + "</b> ";
      }
    }
    std::string clean;
    for (const ResultFile::Kind& kind : result.clean) {
      clean += fmt::format("{} {} of {}<br>", HtmlText(kind.kind),
                           FormatCount(kind.clean), FormatCount(kind.of));
    }
    const std::string own = OwnReport(results[i].first);
    out += fmt::format(
        "<tr><th scope=row><b>{}</b><td><b>{}</b><br><span class=muted>{}"
        "{}</span><td class=\"verdict v-{}\">{} {}<td>{}<td>{}<td class=num>{}"
        "<td>{}<td>{}",
        ColumnLetter(i), HtmlText(ShownName(results[i].first)),
        HtmlText(result.candidate.mesh),
        own.empty() ? "" : "<br>" + HtmlText(ShownName(own)),
        HtmlText(result.verdict), headline.sign, headline.words,
        FirstWords(result), letters.empty() ? "&ndash;" : letters,
        FormatCount(std::count_if(models[i].severity.begin(),
                                  models[i].severity.end(), IsOut)),
        clean, ClosestWords(models[i]));
  }
  return out + "</table></div>";
}

// What fits a cell: "0.55", "30", "3e+05".
std::string ShortHeadroom(double headroom) {
  return std::isfinite(headroom) && headroom >= 1000
             ? fmt::format("{:.0e}", headroom)
             : HtmlHeadroom(headroom);
}

struct MatrixCell {
  Severity worst = Severity::kNone;
  double headroom = 0;
};
// Of a layer, by column of the map and result.
using MatrixRow = std::vector<MatrixCell>;

// Clean, open or out: steps within one of these are no change.
int OutcomeOf(Severity severity) {
  if (severity == Severity::kNone) return 0;
  if (IsOut(severity)) return 3;
  return severity == Severity::kNotCheckable || severity == Severity::kOneSide
             ? 2
             : 1;
}

class Matrix {
 public:
  explicit Matrix(const std::vector<ReportModel>& models)
      : results_(models.size()) {
    // In the order of the first; then what only the others have.
    for (const ReportModel& model : models) {
      for (const std::string& name : OverviewRows(model)) {
        if (rows_.try_emplace(name, kMapColumns * results_).second) {
          names_.push_back(name);
        }
      }
    }
    for (size_t result = 0; result < models.size(); ++result) {
      for (size_t i = 0; i < models[result].tensors.size(); ++i) {
        Add(result, *models[result].tensors[i], models[result].severity[i]);
      }
    }
  }

  std::string Html() const {
    std::string out =
        "<div class=scroll><table class=\"compare small\"><thead><tr><th>";
    std::string letters = "<tr><th scope=col>layer";
    for (size_t column = 0; column < kMapColumns; ++column) {
      if (!used_[column]) continue;
      out += fmt::format("<th scope=colgroup class=start colspan={}>{}",
                         results_, kMapColumnWords[column].label);
      for (size_t result = 0; result < results_; ++result) {
        letters +=
            (result == 0 ? "<th scope=col class=start>" : "<th scope=col>") +
            ColumnLetter(result);
      }
    }
    out += letters + "</thead><tbody>";
    for (size_t i = 0; i < std::min(names_.size(), kMostMatrixRows); ++i) {
      out += RowHtml(names_[i], rows_.at(names_[i]));
    }
    out += "</table></div>";
    if (names_.size() > kMostMatrixRows) {
      out += fmt::format("<p class=muted>{} more layers are not drawn.</p>",
                         names_.size() - kMostMatrixRows);
    }
    return out;
  }

  bool empty() const { return names_.empty(); }

  int64_t changed() const {
    return std::count_if(
        names_.begin(), names_.end(),
        [&](const std::string& name) { return Changed(rows_.at(name)); });
  }

 private:
  void Add(size_t result, const ResultFile::Tensor& tensor, Severity severity) {
    const size_t column = MapColumnOf(tensor);
    used_[column] = true;
    MatrixCell& cell =
        rows_.at(OverviewGroup(tensor))[column * results_ + result];
    if (severity > cell.worst ||
        (severity == cell.worst && tensor.headroom > cell.headroom)) {
      cell.worst = severity;
      cell.headroom = tensor.headroom;
    }
  }

  bool Changed(const MatrixRow& row) const {
    for (size_t column = 0; column < kMapColumns; ++column) {
      const size_t first = column * results_;
      for (size_t i = 1; i < results_; ++i) {
        if (OutcomeOf(row[first + i].worst) != OutcomeOf(row[first].worst)) {
          return true;
        }
      }
    }
    return false;
  }

  std::string RowHtml(const std::string& name, const MatrixRow& row) const {
    std::string out =
        std::string("<tr class=") + (Changed(row) ? "changed" : "same") +
        "><th scope=row>" +
        (name.empty() ? "(model)"
                      : HtmlText(ShortenMiddle(Printable(name), 60)));
    for (size_t column = 0; column < kMapColumns; ++column) {
      if (!used_[column]) continue;
      for (size_t result = 0; result < results_; ++result) {
        const MatrixCell& cell = row[column * results_ + result];
        const bool with_number =
            IsOut(cell.worst) || cell.worst == Severity::kClose;
        out += fmt::format("<td class=\"cell s{}{}\" title=\"{} {}: {}\">{}",
                           static_cast<int>(cell.worst),
                           result == 0 ? " start" : "", ColumnLetter(result),
                           kMapColumnWords[column].label,
                           kSeverityWords[static_cast<size_t>(cell.worst)],
                           with_number ? ShortHeadroom(cell.headroom) : "");
      }
    }
    return out;
  }

  size_t results_;
  std::map<std::string, MatrixRow> rows_;
  std::vector<std::string> names_;
  std::array<bool, kMapColumns> used_ = {};
};

}  // namespace

std::string RenderHtmlComparison(const NamedResults& results) {
  std::vector<ReportModel> models;
  for (const auto& [path, result] : results) {
    models.push_back(MakeReportModel(result));
  }
  const Matrix matrix(models);
  Frame frame;
  frame.title = fmt::format("TTrace: {} results", results.size());
  frame.verdict = "compare";
  frame.body = fmt::format(
      "<main><section><header><h1>{} results side by side</h1></header>{}"
      "</section>\n",
      results.size(), ResultsTable(results, models));
  if (!matrix.empty()) {
    frame.body += fmt::format(
        "<section><h2>Layers</h2><p class=lead>The worst tensor of each layer "
        "and kind over all iterations, a column a result. {} between clean, "
        "undecided and out of bounds.</p><input type=checkbox id=changed "
        "aria-label=\"only what changed\"> <label for=changed>only what "
        "changed</label>{}{}</section>\n",
        matrix.changed() == 0 ? "No layer changed"
                              : Counted(matrix.changed(), "layer") + " changed",
        LegendHtml({}), matrix.Html());
  }
  frame.body += "</main>\n";
  return FrameHtml(frame);
}

}  // namespace ttrace
