// One picture of an iteration: a row a layer, a column a kind of tensor, in the
// order of execution. It fits a screen whatever the model's depth, so rows of a
// very deep one stand for several layers.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/format.h"
#include "src/report/html/html_text.h"
#include "src/report/html/sections.h"

namespace ttrace {
namespace {

constexpr size_t kMostOverviewRows = 120;
constexpr size_t kMostMultiples = 8;
constexpr size_t kLongestRowLabel = 22;

struct OverviewCell {
  Severity worst = Severity::kNone;
  int64_t out = 0;
  int64_t of = 0;
};

class Overview {
 public:
  explicit Overview(const ReportModel& model)
      : model_(model), names_(OverviewRows(model)) {
    per_row_ = std::max<size_t>(
        1, (names_.size() + kMostOverviewRows - 1) / kMostOverviewRows);
    for (size_t i = 0; i < names_.size(); ++i)
      row_of_[names_[i]] = i / per_row_;
    rows_ = names_.empty() ? 0 : (names_.size() - 1) / per_row_ + 1;
  }

  size_t rows() const { return rows_; }

  std::string Draw(int64_t iteration) const {
    constexpr size_t kLeft = 152;
    constexpr size_t kTop = 40;
    constexpr size_t kWidth = 36;
    const size_t height = std::clamp<size_t>(540 / rows_, 4, 16);
    const std::vector<OverviewCell> cells = Cells(iteration);
    std::string svg;
    for (size_t column = 0; column < kMapColumns; ++column) {
      const MapColumn& words = kMapColumnWords[column];
      if (StartsGroup(column)) {
        svg += fmt::format("<text class=group x={} y=12>{}</text>",
                           At(column, kLeft, kWidth), words.group);
      }
      std::string label = words.label;
      if (label.rfind("grad ", 0) == 0) label = "g. " + label.substr(5);
      svg += fmt::format("<text x={} y=30 text-anchor=middle>{}</text>",
                         At(column, kLeft, kWidth) + kWidth / 2, label);
    }
    const size_t every = (12 + height) / (height + 1);
    for (size_t row = 0; row < rows_; ++row) {
      const size_t y = kTop + row * (height + 1);
      if (row % every == 0) {
        svg += fmt::format(
            "<text class=row x={} y=\"{:.1f}\" text-anchor=end>{}</text>",
            kLeft - 8,
            static_cast<double>(y) + static_cast<double>(height) / 2 + 3.5,
            Label(row));
      }
      for (size_t column = 0; column < kMapColumns; ++column) {
        const OverviewCell& cell = cells[row * kMapColumns + column];
        if (cell.of == 0) continue;
        svg += fmt::format(
            "<rect class=s{} x={} y={} width={} height={}><title>{}, {}: {}{}"
            "</title></rect>",
            static_cast<int>(cell.worst), At(column, kLeft, kWidth), y, kWidth,
            height, RowWords(row), kMapColumnWords[column].label,
            kSeverityWords[static_cast<size_t>(cell.worst)],
            cell.out > 0 ? fmt::format("; {} of {} out", FormatCount(cell.out),
                                       FormatCount(cell.of))
                         : "");
      }
    }
    svg += Marks(iteration, kLeft, kTop, kWidth, height);
    const size_t across = At(kMapColumns - 1, kLeft, kWidth) + kWidth + 6;
    const size_t down = kTop + rows_ * (height + 1) + 4;
    return fmt::format(
        "<svg class=overview viewBox=\"0 0 {0} {1}\" width={0} height={1} "
        "role=img aria-label=\"Worst tensor of each layer and kind, iteration "
        "{2}: {3}\">{4}</svg>",
        across, down, iteration, Counted(cells), svg);
  }

  // Without words, small enough to stand beside others.
  std::string DrawSmall(int64_t iteration) const {
    constexpr size_t kCell = 9;
    const size_t height = std::clamp<size_t>(120 / rows_, 2, 6);
    const std::vector<OverviewCell> cells = Cells(iteration);
    std::string svg;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].of == 0) continue;
      svg += fmt::format("<rect class=s{} x={} y={} width={} height={} />",
                         static_cast<int>(cells[i].worst),
                         At(i % kMapColumns, 0, kCell),
                         i / kMapColumns * height, kCell, height);
    }
    const size_t across = At(kMapColumns - 1, 0, kCell) + kCell;
    return fmt::format(
        "<figure><svg class=multiple viewBox=\"0 0 {0} {1}\" width={0} "
        "height={1} role=img aria-label=\"iteration {2}: {3}\">{4}</svg>"
        "<figcaption data-iteration={2}>{2}</figcaption></figure>",
        across, rows_ * height, iteration, Counted(cells), svg);
  }

 private:
  static bool StartsGroup(size_t column) {
    return column == 0 ||
           kMapColumnWords[column].group !=
               std::string_view(kMapColumnWords[column - 1].group);
  }

  static size_t At(size_t column, size_t left, size_t width) {
    size_t x = left + column * (width + (width > 20 ? 2 : 1));
    for (size_t c = 1; c <= column; ++c) {
      if (StartsGroup(c)) x += width > 20 ? 6 : 2;
    }
    return x;
  }

  std::vector<OverviewCell> Cells(int64_t iteration) const {
    std::vector<OverviewCell> cells(rows_ * kMapColumns);
    for (size_t i = 0; i < model_.tensors.size(); ++i) {
      const ResultFile::Tensor& tensor = *model_.tensors[i];
      if (tensor.iteration != iteration) continue;
      OverviewCell& cell =
          cells[row_of_.at(OverviewGroup(tensor)) * kMapColumns +
                MapColumnOf(tensor)];
      ++cell.of;
      if (IsOut(model_.severity[i])) ++cell.out;
      cell.worst = std::max(cell.worst, model_.severity[i]);
    }
    return cells;
  }

  static std::string Counted(const std::vector<OverviewCell>& cells) {
    int64_t out = 0;
    int64_t of = 0;
    for (const OverviewCell& cell : cells) {
      out += cell.out;
      of += cell.of;
    }
    return fmt::format("{} of {} tensors out of bounds", FormatCount(out),
                       FormatCount(of));
  }

  // Its last two parts, or the last: enough to tell layers from each other.
  std::string Label(size_t row) const {
    const std::string name = Printable(names_[row * per_row_]);
    if (name.empty()) return "(model)";
    const size_t last = name.rfind('.');
    if (last == std::string::npos || last == 0) {
      return HtmlText(ShortenMiddle(name, kLongestRowLabel));
    }
    const size_t before = name.rfind('.', last - 1);
    const std::string two =
        before == std::string::npos ? name : name.substr(before + 1);
    return HtmlText(ShortenMiddle(
        Columns(two) <= kLongestRowLabel ? two : name.substr(last + 1),
        kLongestRowLabel));
  }

  std::string RowWords(size_t row) const {
    const auto name = [&](size_t i) {
      return names_[i].empty()
                 ? "(model)"
                 : HtmlText(ShortenMiddle(Printable(names_[i]), 60));
    };
    const size_t first = row * per_row_;
    const size_t last = std::min(first + per_row_, names_.size()) - 1;
    return first == last ? name(first) : name(first) + " to " + name(last);
  }

  std::string Marks(int64_t iteration, size_t left, size_t top, size_t width,
                    size_t height) const {
    std::set<std::pair<size_t, size_t>> marked;
    std::string svg;
    for (size_t i = 0; i < model_.result->culprits.size(); ++i) {
      const ResultFile::Tensor* tensor = model_.TensorOfCulprit(i);
      if (tensor == nullptr || tensor->iteration != iteration) continue;
      const size_t row = row_of_.at(OverviewGroup(*tensor));
      const size_t column = MapColumnOf(*tensor);
      if (!marked.emplace(row, column).second) continue;
      const double x = static_cast<double>(At(column, left, width));
      const double y = static_cast<double>(top + row * (height + 1));
      svg += fmt::format(
          "<rect class=ring x=\"{:.1f}\" y=\"{:.1f}\" width={} height={} rx=2 "
          "/><path class=flag d=\"M{:.1f} {:.1f}l6 4l-6 4z\"/>",
          x - 1.5, y - 1.5, width + 3, height + 3, x - 9,
          y + static_cast<double>(height) / 2 - 4);
    }
    return svg;
  }

  const ReportModel& model_;
  std::vector<std::string> names_;
  std::map<std::string, size_t> row_of_;
  size_t per_row_ = 1;
  size_t rows_ = 0;
};

}  // namespace

std::string OverviewHtml(const ReportModel& model) {
  const Overview overview(model);
  if (overview.rows() == 0) return "";
  std::set<int64_t> iterations;
  for (const ResultFile::Tensor* tensor : model.tensors) {
    iterations.insert(tensor->iteration);
  }
  std::string out =
      fmt::format("<h3>Where, iteration {}: worst tensor of each layer</h3>{}",
                  model.iteration, overview.Draw(model.iteration));
  if (iterations.size() > 1 && iterations.size() <= kMostMultiples) {
    out += "<h3>Each iteration</h3><div class=multiples>";
    for (const int64_t iteration : iterations) {
      out += overview.DrawSmall(iteration);
    }
    out += "</div>";
  }
  return out;
}

std::string CleanBarsHtml(const ResultFile& result) {
  if (result.clean.empty()) return "";
  std::string rows;
  for (const ResultFile::Kind& kind : result.clean) {
    const double of = static_cast<double>(std::max<int64_t>(1, kind.of));
    const auto width = [&](int64_t count) {
      return 120 * std::clamp(static_cast<double>(count) / of, 0.0, 1.0);
    };
    const double clean = width(kind.clean);
    const double open = std::min(width(kind.not_checkable), 120 - clean);
    rows += fmt::format(
        "<tr><th scope=row>{}<td class=num>{} of {}<td><svg width=120 height=9 "
        "aria-hidden=true><rect class=s{} width=120 height=9 /><rect class=s7 "
        "width=\"{:.1f}\" height=9 /><rect class=s5 width=\"{:.1f}\" height=9 "
        "/></svg>{}",
        HtmlText(kind.kind), FormatCount(kind.clean), FormatCount(kind.of),
        kind.clean + kind.not_checkable < kind.of
            ? static_cast<int>(Severity::kFarOut)
            : static_cast<int>(Severity::kNotCheckable),
        clean + open, clean,
        kind.not_checkable > 0
            ? fmt::format(" <span class=muted>{} not checkable</span>",
                          FormatCount(kind.not_checkable))
            : "");
  }
  std::string extra;
  const auto add = [&](int64_t count, const char* words) {
    if (count == 0) return;
    extra += (extra.empty() ? "" : "; ") + FormatCount(count) + " " + words;
  };
  add(result.downstream, "downstream of a fault");
  add(result.suspects, "close to the bound");
  add(result.not_checkable, "not checkable");
  return "<table class=\"small bars\"><caption>In bounds</caption>" + rows +
         "</table><p class=muted>" + extra + "</p>";
}

std::string LegendHtml(const LegendMarks& marks) {
  std::string out = "<ul class=legend aria-label=Legend>";
  constexpr std::array<size_t, kSeverities - 1> kOrder = {3,  4,  5, 6, 9, 10,
                                                          11, 12, 7, 1, 2, 8};
  for (const size_t i : kOrder) {
    out += fmt::format("<li title=\"{}\"><i class=\"k s{}\"></i>{}",
                       kSeverityWords[i], i, kSeverityShort[i]);
  }
  if (marks.culprits) {
    out +=
        "<li><i class=\"k cul\"></i>named as a fault<li><i class=\"k "
        "aff\"></i>the same fault";
  }
  if (marks.downstream) out += "<li><i class=\"k down\"></i>downstream";
  return out + "</ul>";
}

}  // namespace ttrace
