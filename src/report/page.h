// Page: lines of a terminal report under a gutter of labels.
//
//   CHECKED  5,460 of 5,460 tensors compared
//            iterations 0-1, 2 ranks
//
// Everything added is made printable and wrapped here, so that no caller can
// forget to. Colour never changes where a line breaks.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_REPORT_PAGE_H_
#define TTRACE_SRC_REPORT_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {

enum class Tone { kPlain, kStrong, kGood, kBad, kDoubtful };

class Page {
 public:
  // `width` below 60 columns counts as 60: tables need that much.
  Page(int width, bool color);

  // The next line added carries `label`. A section to which nothing is added
  // leaves no trace.
  void Section(std::string_view label, Tone tone = Tone::kStrong);

  // Whether sections are set apart by empty lines. A short page needs none.
  void SpaceSections(bool on) { spaced_ = on; }

  // Wrapped text; lines after the first are indented by `hang` more columns.
  void Text(std::string_view text, Tone tone = Tone::kPlain, size_t hang = 0);

  // One line, never broken: a command to copy, a path. Width is not kept.
  void Verbatim(std::string_view text);

  // Rows of equally many cells. The last column takes the rest of the line and
  // wraps inside itself; the others are as wide as their widest cell, of which
  // the first gives way to "..." in its middle when a line runs out.
  // Below row i stands `below[i]`, indented and never broken, if there is one.
  void Table(const std::vector<std::vector<std::string>>& rows,
             const std::vector<std::string>& below = {});

  // Columns right of the gutter.
  size_t columns() const { return columns_; }

  std::string Take() { return std::move(out_); }

 private:
  void AddLine(std::string_view text, Tone tone);
  std::string Paint(std::string_view text, Tone tone) const;

  size_t columns_;
  bool color_;
  std::string label_;
  Tone label_tone_ = Tone::kPlain;
  bool spaced_ = false;
  std::string out_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_PAGE_H_
