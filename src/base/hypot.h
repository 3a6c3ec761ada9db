// Hypot: the root of a sum of two squares. std::hypot, but for what a build
// with it needs at run time: of glibc 2.35 it has a version of its own, so that
// a wheel would run on nothing older (docs/install.md).

#ifndef TTRACE_SRC_BASE_HYPOT_H_
#define TTRACE_SRC_BASE_HYPOT_H_

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttrace {

// Within two units in the last place; neither squares nor their sum overflow
// or underflow. Infinite if either is infinite, whatever the other; else NaN if
// either is NaN.
inline double Hypot(double a, double b) {
  const double x = std::abs(a);
  const double y = std::abs(b);
  if (std::isinf(x) || std::isinf(y)) {
    return std::numeric_limits<double>::infinity();
  }
  if (std::isnan(x) || std::isnan(y)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double larger = std::max(x, y);
  if (larger == 0) return 0;
  const double ratio = std::min(x, y) / larger;
  return larger * std::sqrt(1 + ratio * ratio);
}

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_HYPOT_H_
