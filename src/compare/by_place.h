// An order of the regions of one tensor, for maps.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_COMPARE_BY_PLACE_H_
#define TTRACE_SRC_COMPARE_BY_PLACE_H_

#include <algorithm>
#include <tuple>

#include "ttrace/layout.h"

namespace ttrace {

// By where they begin, dimension by dimension; equal if they hold the same.
// REQUIRES: both have one global shape.
struct ByPlace {
  bool operator()(const Layout& a, const Layout& b) const {
    return std::lexicographical_compare(a.dims.begin(), a.dims.end(),
                                        b.dims.begin(), b.dims.end(), Before);
  }

 private:
  static bool Before(const DimLayout& a, const DimLayout& b) {
    return std::lexicographical_compare(
        a.segments.begin(), a.segments.end(), b.segments.begin(),
        b.segments.end(), [](const Segment& x, const Segment& y) {
          return std::tie(x.begin, x.size) < std::tie(y.begin, y.size);
        });
  }
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_BY_PLACE_H_
