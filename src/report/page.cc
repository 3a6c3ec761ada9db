#include "src/report/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/format.h"

namespace ttrace {
namespace {

// "CHECKED", the longest label of a section, and two spaces. The verdict's
// words are longer and push only their own line.
constexpr size_t kGutter = 9;
constexpr size_t kGap = 2;

// A single name or note must not bury the report. result.json has all of it.
constexpr size_t kMaxTextColumns = 1200;

std::string Padded(std::string_view text, size_t width) {
  std::string out(text);
  const size_t columns = Columns(text);
  if (columns < width) out.append(width - columns, ' ');
  return out;
}

}  // namespace

Page::Page(int width, bool color)
    : columns_(static_cast<size_t>(std::max(width, 60)) - kGutter),
      color_(color) {}

void Page::Section(std::string_view label, Tone tone) {
  label_ = label;
  label_tone_ = tone;
}

std::string Page::Paint(std::string_view text, Tone tone) const {
  if (!color_ || tone == Tone::kPlain || text.empty()) {
    return std::string(text);
  }
  std::string_view code = "1";
  if (tone == Tone::kGood) code = "32;1";
  if (tone == Tone::kBad) code = "31;1";
  if (tone == Tone::kDoubtful) code = "33;1";
  std::string out = "\x1b[";
  out += code;
  out += 'm';
  out += text;
  out += "\x1b[0m";
  return out;
}

void Page::AddLine(std::string_view text, Tone tone) {
  size_t pad = kGutter;
  if (!label_.empty()) {
    if (spaced_ && !out_.empty()) out_ += '\n';
    out_ += Paint(label_, label_tone_);
    const size_t used = Columns(label_);
    pad = used + kGap <= kGutter ? kGutter - used : kGap;
    label_.clear();
  }
  if (!text.empty()) {
    out_.append(pad, ' ');
    out_ += Paint(text, tone);
  }
  out_ += '\n';
}

void Page::Text(std::string_view text, Tone tone, size_t hang) {
  const std::string shown = ShortenMiddle(Printable(text), kMaxTextColumns);
  // The verdict's word may be wider than the gutter, on its own line only.
  const size_t label = Columns(label_);
  const size_t pushed =
      label + kGap > kGutter ? label + kGap - kGutter : size_t{0};
  const std::vector<std::string> lines =
      Wrap(shown, columns_ - std::max(hang, pushed));
  for (size_t i = 0; i < lines.size(); ++i) {
    AddLine(i == 0 ? lines[i] : std::string(hang, ' ') + lines[i], tone);
  }
}

void Page::Verbatim(std::string_view text) {
  AddLine(ShortenMiddle(Printable(text), kMaxTextColumns), Tone::kPlain);
}

void Page::Table(const std::vector<std::vector<std::string>>& rows,
                 const std::vector<std::string>& below) {
  if (rows.empty() || rows.front().empty()) return;
  const size_t last = rows.front().size() - 1;
  std::vector<std::vector<std::string>> cells = rows;
  std::vector<size_t> widths(last, 0);
  for (std::vector<std::string>& row : cells) {
    for (size_t i = 0; i <= last; ++i) {
      row[i] = ShortenMiddle(Printable(row[i]), kMaxTextColumns);
      if (i < last) widths[i] = std::max(widths[i], Columns(row[i]));
    }
  }
  // What the last column needs to wrap without tearing words apart.
  constexpr size_t kLeastRest = 24;
  size_t fixed = 0;
  for (const size_t width : widths) fixed += width + kGap;
  if (last > 0 && fixed + kLeastRest > columns_) {
    const size_t excess = fixed + kLeastRest - columns_;
    constexpr size_t kLeastName = 12;
    widths[0] = std::max(std::min(widths[0], kLeastName),
                         widths[0] > excess ? widths[0] - excess : 0);
    fixed = 0;
    for (const size_t width : widths) fixed += width + kGap;
  }
  const size_t rest = columns_ > fixed + 8 ? columns_ - fixed : size_t{8};
  for (size_t r = 0; r < cells.size(); ++r) {
    const std::vector<std::string>& row = cells[r];
    std::string line;
    for (size_t i = 0; i < last; ++i) {
      line += Padded(ShortenMiddle(row[i], widths[i]), widths[i] + kGap);
    }
    for (const std::string& part : Wrap(row[last], rest)) {
      line += part;
      while (!line.empty() && line.back() == ' ') line.pop_back();
      AddLine(line, Tone::kPlain);
      line.assign(fixed, ' ');
    }
    if (r < below.size() && !below[r].empty()) Verbatim("  " + below[r]);
  }
}

}  // namespace ttrace
