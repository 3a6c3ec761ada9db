// How results spell the numbers that JSON cannot: as text. Python's float() and
// JavaScript's Number() both read it.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_JSON_NUMBERS_H_
#define TTRACE_SRC_REPORT_JSON_NUMBERS_H_

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace ttrace {

inline constexpr std::array<std::pair<std::string_view, double>, 3>
    kSpelledNumbers = {
        {{"NaN", std::numeric_limits<double>::quiet_NaN()},
         {"Infinity", std::numeric_limits<double>::infinity()},
         {"-Infinity", -std::numeric_limits<double>::infinity()}}};

// Empty of a number that JSON has itself.
inline std::string_view SpelledNumber(double value) {
  for (const auto& [text, number] : kSpelledNumbers) {
    if (value == number || (std::isnan(value) && std::isnan(number))) {
      return text;
    }
  }
  return "";
}

// Nothing if `text` spells no such number.
inline std::optional<double> ReadSpelledNumber(std::string_view text) {
  for (const auto& [spelled, number] : kSpelledNumbers) {
    if (text == spelled) return number;
  }
  return std::nullopt;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_JSON_NUMBERS_H_
