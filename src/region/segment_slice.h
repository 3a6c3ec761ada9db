// A slice of a dimension's local indices, as segments of the global tensor.

#ifndef TTRACE_SRC_REGION_SEGMENT_SLICE_H_
#define TTRACE_SRC_REGION_SEGMENT_SLICE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ttrace/layout.h"

namespace ttrace {

// Appends the elements [begin, begin + size) of the concatenation of
// `segments` to `out`, joining neighbours.
inline void AppendSlice(const std::vector<Segment>& segments, Segment slice,
                        std::vector<Segment>& out) {
  int64_t position = 0;
  const int64_t slice_end = slice.begin + slice.size;
  for (const Segment& s : segments) {
    const int64_t begin = std::max(slice.begin, position);
    const int64_t end = std::min(slice_end, position + s.size);
    if (begin < end) {
      const Segment piece{s.begin + (begin - position), end - begin};
      if (!out.empty() && out.back().begin + out.back().size == piece.begin) {
        out.back().size += piece.size;
      } else {
        out.push_back(piece);
      }
    }
    position += s.size;
    if (position >= slice_end) break;
  }
}

}  // namespace ttrace

#endif  // TTRACE_SRC_REGION_SEGMENT_SLICE_H_
