#include "src/base/format.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

struct CodePoint {
  char32_t value;
  size_t bytes;
};

// Decodes the code point that starts `text`, or nothing if its bytes are not
// well-formed UTF-8 (overlong forms and surrogates are not).
std::optional<CodePoint> Decode(std::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return CodePoint{lead, 1};
  size_t bytes = 0;
  char32_t value = 0;
  char32_t least = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    bytes = 2;
    value = lead & 0x1F;
    least = 0x80;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    bytes = 3;
    value = lead & 0x0F;
    least = 0x800;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    bytes = 4;
    value = lead & 0x07;
    least = 0x10000;
  } else {
    return std::nullopt;
  }
  if (text.size() < bytes) return std::nullopt;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return std::nullopt;
    value = (value << 6) | (byte(i) & 0x3F);
  }
  if (value < least || value > 0x10FFFF) return std::nullopt;
  if (value >= 0xD800 && value <= 0xDFFF) return std::nullopt;
  return CodePoint{value, bytes};
}

// What is left of Unicode's invisible characters after the controls: a name
// that holds one looks like another name, or turns a line around.
bool IsInvisible(char32_t c) {
  return c == 0xAD || c == 0x61C || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
         c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
         (c >= 0xE0000 && c <= 0xE0FFF);
}

// Start of the code point after the one at `position`.
size_t Next(std::string_view text, size_t position) {
  ++position;
  while (position < text.size() &&
         (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80) {
    ++position;
  }
  return position;
}

size_t BytesOfColumns(std::string_view text, size_t columns) {
  size_t position = 0;
  while (columns > 0 && position < text.size()) {
    position = Next(text, position);
    --columns;
  }
  return position;
}

// 63,123 -> 63,000: digits after the second say nothing.
double TwoDigits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

}  // namespace

std::string FormatCount(int64_t count) {
  std::string digits = fmt::format("{}", count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string FormatError(double error) {
  if (std::isnan(error)) return "-";
  if (error == 0) return "0";
  return fmt::format("{:.1e}", error);
}

std::string FormatHeadroom(double headroom) {
  if (std::isnan(headroom)) return "-";
  if (headroom == 0) return "0";
  if (headroom < 0.001 || headroom >= 1e6) {
    return fmt::format("{:.1e}", headroom);
  }
  const double rounded = TwoDigits(headroom);
  if (rounded < 10) return fmt::format("{:.2g}", headroom);
  return FormatCount(std::llround(rounded));
}

std::string FormatBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  // 999.5 and not 1000, or 999,999 bytes would print as "1000 kB".
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0 || bytes >= 9.95) {
    return fmt::format("{:.0f} {}", bytes, kUnits[unit]);
  }
  return fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string FormatSeconds(double seconds) {
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  return FormatCount(std::llround(seconds)) + " s";
}

template <typename Int>
std::string FormatRanks(const std::vector<Int>& ranks, int world_size) {
  const auto count = static_cast<int64_t>(ranks.size());
  if (ranks.empty() || count == world_size) {
    if (world_size <= 0) return "all ranks";
    if (world_size == 1) return "rank 0";
    return fmt::format("all {} ranks", FormatCount(world_size));
  }
  std::string out = count == 1 ? "rank " : "ranks ";
  // Past this many runs a list stops being read.
  constexpr int kMaxRuns = 8;
  int runs = 0;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (runs > 0) out += ", ";
    if (runs == kMaxRuns) {
      return out + fmt::format("... ({} ranks)", FormatCount(count));
    }
    out += end - i == 1 ? fmt::format("{}", ranks[i])
                        : fmt::format("{}-{}", ranks[i], ranks[end - 1]);
    ++runs;
    i = end;
  }
  return out;
}
template std::string FormatRanks<int>(const std::vector<int>&, int);
template std::string FormatRanks<int64_t>(const std::vector<int64_t>&, int);

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::optional<CodePoint> point = Decode(text);
    if (!point) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    const char32_t c = point->value;
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if ((c >= 0x80 && c < 0xA0) || IsInvisible(c)) {
      // U+009B alone starts an escape sequence on some terminals.
      out += fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(c));
    } else {
      out += text.substr(0, point->bytes);
    }
    text.remove_prefix(point->bytes);
  }
  return out;
}

size_t Columns(std::string_view text) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); i = Next(text, i)) ++columns;
  return columns;
}

std::string ShortenMiddle(std::string_view text, size_t columns) {
  const size_t total = Columns(text);
  if (total <= columns) return std::string(text);
  constexpr std::string_view kGap = "...";
  if (columns <= kGap.size()) {
    return std::string(text.substr(0, BytesOfColumns(text, columns)));
  }
  const size_t tail = (columns - kGap.size()) / 2;
  const size_t head = columns - kGap.size() - tail;
  std::string out(text.substr(0, BytesOfColumns(text, head)));
  out += kGap;
  out += text.substr(BytesOfColumns(text, total - tail));
  return out;
}

std::vector<std::string> Wrap(std::string_view text, size_t columns) {
  if (columns == 0) columns = 1;
  std::vector<std::string> lines;
  std::string line;
  size_t width = 0;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    std::string_view word = text.substr(0, space);
    text = space == std::string_view::npos ? std::string_view()
                                           : text.substr(space + 1);
    if (word.empty()) continue;
    size_t word_width = Columns(word);
    if (width > 0 && width + 1 + word_width > columns) {
      lines.push_back(std::move(line));
      line.clear();
      width = 0;
    }
    while (word_width > columns) {
      const size_t cut = BytesOfColumns(word, columns);
      lines.emplace_back(word.substr(0, cut));
      word.remove_prefix(cut);
      word_width -= columns;
    }
    if (width > 0) {
      line += ' ';
      ++width;
    }
    line += word;
    width += word_width;
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace ttrace
