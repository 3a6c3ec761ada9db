// The ratio of two whole numbers that a measured number most likely is.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_SIMPLEST_RATIO_H_
#define TTRACE_SRC_EXPERIMENT_SIMPLEST_RATIO_H_

#include <cmath>
#include <cstdint>
#include <optional>

#include "src/trace/record_fields.h"

namespace ttrace {

// The ratio with the smallest denominator in [low, high]. Nothing unless 0 <
// low <= high, and nothing beyond `largest` in numerator or denominator.
inline std::optional<Scale> SimplestRatio(double low, double high,
                                          int64_t largest) {
  if (!(low > 0) || !(high >= low) || !std::isfinite(high)) return std::nullopt;
  // The whole part that both ends share belongs to the ratio, and what is left
  // of them is turned over, until there is a whole number in between: the
  // ratio's continued fraction. `before` and `now` are its last two
  // approximants.
  Scale before = {1, 0};
  Scale now = {0, 1};
  // Each step at least halves what is left of the denominator.
  for (int step = 0; step < 64; ++step) {
    const double whole = std::ceil(low);
    const bool found = whole <= high;
    const double part = found ? whole : std::floor(low);
    if (!(part <= static_cast<double>(largest))) return std::nullopt;
    const auto n = static_cast<int64_t>(part);
    // Below: n and both approximants are at most `largest`.
    Scale next = {n * before.numerator + now.numerator,
                  n * before.denominator + now.denominator};
    if (next.numerator > largest || next.denominator > largest) {
      return std::nullopt;
    }
    if (found) return next;
    now = before;
    before = next;
    const double rest_low = low - part;
    const double rest_high = high - part;
    low = 1 / rest_high;
    high = 1 / rest_low;
  }
  return std::nullopt;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_SIMPLEST_RATIO_H_
