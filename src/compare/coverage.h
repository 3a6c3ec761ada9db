// Which elements of a tensor two sets of layouts hold, counted by intervals.

#ifndef TTRACE_SRC_COMPARE_COVERAGE_H_
#define TTRACE_SRC_COMPARE_COVERAGE_H_

#include <cstdint>
#include <vector>

#include "ttrace/layout.h"

namespace ttrace {

struct Coverage {
  int64_t both = 0;
  int64_t only_a = 0;
  int64_t only_b = 0;
  int64_t twice_a = 0;  // elements that two or more of a's layouts hold
  int64_t twice_b = 0;
};

// REQUIRES: all layouts have the same global shape. Layouts of one side are
// distinct (a replica counts once).
Coverage MeasureCoverage(const std::vector<const Layout*>& a,
                         const std::vector<const Layout*>& b);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COVERAGE_H_
