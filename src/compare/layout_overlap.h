// Which elements of a tensor two sets of layouts hold, counted by intervals.

#ifndef TTRACE_SRC_COMPARE_LAYOUT_OVERLAP_H_
#define TTRACE_SRC_COMPARE_LAYOUT_OVERLAP_H_

#include <cstdint>
#include <vector>

#include "ttrace/layout.h"

namespace ttrace {

struct LayoutOverlap {
  int64_t both = 0;
  int64_t only_a = 0;
  int64_t only_b = 0;
  int64_t twice_a = 0;  // elements that two or more of a's layouts hold
  int64_t twice_b = 0;
};

// REQUIRES: all layouts have the same global shape. Layouts of one side are
// distinct (a replica counts once).
LayoutOverlap MeasureOverlap(const std::vector<const Layout*>& a,
                             const std::vector<const Layout*>& b);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_LAYOUT_OVERLAP_H_
