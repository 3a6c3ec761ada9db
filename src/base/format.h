// How values look in a terminal: numbers, sizes, lists of ranks, and names.
// Names come from files that anyone may have written, so nothing of them
// reaches a terminal before Printable.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_BASE_FORMAT_H_
#define TTRACE_SRC_BASE_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

std::string FormatCount(int64_t count);  // "1,820"

// Two significant digits, because an error has no more that mean anything:
// "6.7e-01", "0", "inf"; "-" for NaN, which stands for "not measured".
std::string FormatError(double error);
// Two significant digits, readable from 0.012 to 63,000 and beyond.
std::string FormatHeadroom(double headroom);

std::string FormatBytes(double bytes);      // "3.4 GB", decimal units
std::string FormatSeconds(double seconds);  // "1.2 s", "240 s"

// "rank 3", "ranks 0-3, 8", "all 4 ranks"; an empty list means all of them. Of
// a world of an unknown size (0) a list is never all.
// REQUIRES: ranks is sorted.
// Of int and int64_t.
template <typename Int = int>
std::string FormatRanks(const std::vector<Int>& ranks, int world_size);

// `text` without anything a terminal would act on or a reader could not see:
// control characters, invisible and direction-changing ones and bytes that are
// not UTF-8 become visible escapes ("\n", "\x1b", "\u{202e}"). Other UTF-8
// passes. The result holds no newline.
std::string Printable(std::string_view text);

// Code points of `text`, which is what a line's width is measured in.
// REQUIRES: valid UTF-8, as Printable returns.
size_t Columns(std::string_view text);

// At most `columns` code points of `text`: the middle gives way to "...",
// because qualified names differ at both ends.
std::string ShortenMiddle(std::string_view text, size_t columns);

// Lines of at most `columns`, broken at spaces, or inside a word that does not
// fit on a line of its own. Never empty.
std::vector<std::string> Wrap(std::string_view text, size_t columns);

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_FORMAT_H_
