// Shared runs of two layouts of one dimension.

#include <algorithm>
#include <vector>

#include "src/base/check.h"
#include "ttrace/layout.h"

namespace ttrace {
namespace {

struct PlacedSegment {
  int64_t begin;  // in the global tensor
  int64_t end;
  int64_t local;  // where it starts in the local tensor
};

std::vector<PlacedSegment> SortedByBegin(const DimLayout& layout) {
  std::vector<PlacedSegment> placed;
  placed.reserve(layout.segments.size());
  int64_t local = 0;
  for (const Segment& s : layout.segments) {
    placed.push_back({s.begin, s.begin + s.size, local});
    local += s.size;
  }
  std::sort(placed.begin(), placed.end(),
            [](const PlacedSegment& x, const PlacedSegment& y) {
              return x.begin < y.begin;
            });
  return placed;
}

}  // namespace

std::vector<SharedRun> Intersect(const DimLayout& a, const DimLayout& b) {
  TTRACE_CHECK(a.global_size == b.global_size,
               "layouts of different dimensions cannot be intersected");
  const std::vector<PlacedSegment> left = SortedByBegin(a);
  const std::vector<PlacedSegment> right = SortedByBegin(b);

  std::vector<SharedRun> runs;
  size_t i = 0;
  size_t j = 0;
  while (i < left.size() && j < right.size()) {
    const PlacedSegment& x = left[i];
    const PlacedSegment& y = right[j];
    const int64_t begin = std::max(x.begin, y.begin);
    const int64_t end = std::min(x.end, y.end);
    if (begin < end) {
      runs.push_back({x.local + (begin - x.begin), y.local + (begin - y.begin),
                      begin, end - begin});
    }
    // Segments of one layout are disjoint, so the one that ends first cannot
    // meet anything further on.
    if (x.end <= y.end) {
      ++i;
    } else {
      ++j;
    }
  }
  return runs;
}

}  // namespace ttrace
