#include "src/report/timeline/lanes.h"

#include <algorithm>
#include <array>

namespace ttrace {
namespace {

// Beside the gradients of two branches, which arrive in any order, nothing is
// known to need a third.
constexpr size_t kMostLanes = 8;

// The ends of the slices that are open in one lane, the innermost last.
using OpenEnds = std::vector<int64_t>;

bool FitsIn(OpenEnds& open, const TimelineSlice& slice) {
  while (!open.empty() && open.back() <= slice.begin_us &&
         // What takes no time lies within what ends then.
         !(open.back() == slice.begin_us && slice.end_us == slice.begin_us)) {
    open.pop_back();
  }
  return open.empty() || slice.end_us <= open.back();
}

}  // namespace

void PutInLanes(std::vector<TimelineSlice>* slices) {
  // Of equal ones the first that was given is around the others.
  std::stable_sort(slices->begin(), slices->end(),
                   [](const TimelineSlice& a, const TimelineSlice& b) {
                     if (a.begin_us != b.begin_us) {
                       return a.begin_us < b.begin_us;
                     }
                     return a.end_us > b.end_us;
                   });
  std::array<OpenEnds, kMostLanes> lanes;
  for (TimelineSlice& slice : *slices) {
    size_t lane = 0;
    while (lane + 1 < kMostLanes && !FitsIn(lanes[lane], slice)) ++lane;
    OpenEnds& open = lanes[lane];
    if (!FitsIn(open, slice)) slice.end_us = open.back();
    slice.lane = static_cast<int>(lane);
    open.push_back(slice.end_us);
  }
  std::stable_sort(slices->begin(), slices->end(),
                   [](const TimelineSlice& a, const TimelineSlice& b) {
                     return a.lane < b.lane;
                   });
}

}  // namespace ttrace
