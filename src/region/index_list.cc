// Dimensions whose indices were picked one by one.

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "ttrace/layout.h"

namespace ttrace {
Result<DimLayout> ListIndices(std::span<const int64_t> indices,
                              int64_t global_size) {
  DimLayout out;
  out.global_size = global_size;
  for (const int64_t index : indices) {
    if (index < 0 || index >= global_size) {
      return Invalid("index " + std::to_string(index) +
                     " of a dimension of size " + std::to_string(global_size));
    }
    if (!out.segments.empty() &&
        out.segments.back().begin + out.segments.back().size == index) {
      ++out.segments.back().size;
    } else {
      out.segments.push_back({index, 1});
    }
  }
  std::vector<Segment> sorted = out.segments;
  std::sort(
      sorted.begin(), sorted.end(),
      [](const Segment& a, const Segment& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].begin < sorted[i - 1].begin + sorted[i - 1].size) {
      return Invalid("index " + std::to_string(sorted[i].begin) +
                     " comes twice");
    }
  }
  return out;
}

}  // namespace ttrace
