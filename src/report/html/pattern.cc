// Where in a tensor its error lies: one square a block of its rows and columns,
// and one row a piece that ranks hold.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/format.h"
#include "src/report/html/html_text.h"
#include "src/report/html/sections.h"

namespace ttrace {
namespace {

constexpr size_t kMostBlocks = 64 * 64;
constexpr size_t kMostPieces = 32;
constexpr int kHeatSteps = 6;  // h0 to h5 in style.css

// Index of a colour for `error`: decades below the largest, which is h5.
int HeatStep(double error, double largest) {
  if (!(error > 0)) return 0;
  if (!std::isfinite(error)) return kHeatSteps - 1;
  // Of the largest and the least that a number can be it is infinite.
  const double below =
      std::clamp<double>(std::log10(largest / error) * 2, 0, kHeatSteps - 2);
  return kHeatSteps - 1 - static_cast<int>(below);
}

double LargestFinite(const std::vector<double>& errors) {
  double largest = 0;
  for (const double error : errors) {
    if (std::isfinite(error)) largest = std::max(largest, error);
  }
  return largest;
}

std::string Span(const std::vector<int64_t>& starts, size_t i) {
  return fmt::format("{}&ndash;{}", starts[i], starts[i + 1] - 1);
}

// "8&ndash;15 of dimension 1"; empty for what no dimension is cut along.
std::string AlongWords(const ResultFile::Pattern& pattern, size_t which,
                       const std::vector<int64_t>& starts, size_t block) {
  if (which >= pattern.dims.size() || pattern.dims[which] < 0 ||
      starts.size() < 2) {
    return "";
  }
  return fmt::format("{} of dimension {}", Span(starts, block),
                     pattern.dims[which]);
}

std::string PlaceWords(const ResultFile::Pattern& pattern, size_t row,
                       size_t column) {
  const std::string down = AlongWords(pattern, 0, pattern.rows, row);
  const std::string across = AlongWords(pattern, 1, pattern.columns, column);
  return down.empty() || across.empty() ? down + across : down + ", " + across;
}

// Blocks of one dimension stand in one row.
std::string BlocksSvg(const ResultFile::Pattern& pattern) {
  const size_t rows = pattern.rows.size() < 2 ? 1 : pattern.rows.size() - 1;
  const size_t columns =
      pattern.columns.size() < 2 ? 1 : pattern.columns.size() - 1;
  if (rows * columns != pattern.errors.size() || rows * columns > kMostBlocks) {
    return "";
  }
  const double largest = LargestFinite(pattern.errors);
  const size_t width = std::clamp<size_t>(420 / columns, 6, 80);
  const size_t height = std::clamp<size_t>(240 / rows, 6, 30);
  std::string svg;
  size_t worst = 0;
  for (size_t i = 0; i < pattern.errors.size(); ++i) {
    const size_t row = i / columns;
    const size_t column = i % columns;
    const double error = pattern.errors[i];
    if (!(pattern.errors[worst] >= error)) worst = i;
    svg += fmt::format("<rect class=h{} x={} y={} width={} height={}><title>",
                       HeatStep(error, largest), column * width, row * height,
                       width - 1, height - 1);
    const std::string place = PlaceWords(pattern, row, column);
    svg += place + (place.empty() ? "" : ": ") + "error " + HtmlError(error) +
           "</title></rect>";
  }
  const std::string where =
      PlaceWords(pattern, worst / columns, worst % columns);
  std::string key = "<p class=key>error per element over the reference's: ";
  for (int step = 0; step < kHeatSteps; ++step) {
    const double low = largest * std::pow(10, (step - kHeatSteps + 1) / 2.0);
    key += fmt::format("<span><i class=\"k h{}\"></i> {}</span> ", step,
                       step == 0 ? "0" : HtmlError(low));
  }
  return fmt::format(
             "<svg class=blocks width={} height={} viewBox=\"0 0 {} {}\" "
             "role=img aria-label=\"errors by blocks, largest {} at {}\">{}"
             "</svg>",
             columns * width, rows * height, columns * width, rows * height,
             HtmlError(pattern.errors[worst]), where, svg) +
         fmt::format("<p>Largest {}{}{}{}.</p>",
                     HtmlError(pattern.errors[worst]),
                     where.empty() ? "" : " at ", where,
                     pattern.sampled ? "; of a sample of the elements" : "") +
         key + "</p>";
}

std::string PiecesTable(const ResultFile::Pattern& pattern) {
  if (pattern.pieces.empty()) return "";
  std::vector<const ResultFile::Pattern::Piece*> pieces;
  for (const auto& piece : pattern.pieces) pieces.push_back(&piece);
  std::string cut;
  if (pieces.size() > kMostPieces) {
    // The worst of them, in their own order.
    std::vector<const ResultFile::Pattern::Piece*> by_error = pieces;
    std::stable_sort(by_error.begin(), by_error.end(),
                     [](const auto* a, const auto* b) {
                       const double x = std::isnan(a->err) ? 1e300 : a->err;
                       const double y = std::isnan(b->err) ? 1e300 : b->err;
                       return x > y;
                     });
    by_error.resize(kMostPieces);
    cut = fmt::format(
        "<p class=muted>The {} worst of {} pieces.</p>", kMostPieces,
        FormatCount(
            std::max(pattern.pieces_of, static_cast<int64_t>(pieces.size()))));
    pieces = by_error;
  }
  double largest = 0;
  for (const auto* piece : pieces) {
    if (std::isfinite(piece->err)) largest = std::max(largest, piece->err);
  }
  std::string out =
      "<table class=small><thead><tr><th scope=col>piece of<th scope=col>part "
      "of the tensor<th scope=col class=num>error<th scope=col "
      "class=num>elements that differ</thead><tbody>";
  for (const auto* piece : pieces) {
    out += fmt::format(
        "<tr><th scope=row>{}{}<td>{}<td class=num><i class=\"k h{}\"></i>{}"
        "<td class=num>{} of {}",
        piece->ranks.empty() ? "all ranks" : FormatRanks(piece->ranks, 0),
        piece->micro_batch < 0
            ? ""
            : fmt::format(", micro-batch {}", piece->micro_batch),
        HtmlText(piece->box), HeatStep(piece->err, largest),
        HtmlError(piece->err), FormatCount(piece->mismatched),
        FormatCount(piece->elements));
  }
  return out + "</table>" + cut;
}

}  // namespace

std::string PatternHtml(const ResultFile::Pattern& pattern) {
  const std::string blocks = BlocksSvg(pattern);
  const std::string pieces = PiecesTable(pattern);
  if (blocks.empty() && pieces.empty()) return "";
  return "<h3>Where in the tensor, leg " + HtmlText(pattern.leg) +
         "</h3><div class=pattern><div>" + blocks + "</div><div>" + pieces +
         "</div></div>";
}

}  // namespace ttrace
