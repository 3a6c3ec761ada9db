// Slices in lanes: in each, any two are apart or one is inside of the other.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_TIMELINE_LANES_H_
#define TTRACE_SRC_REPORT_TIMELINE_LANES_H_

#include <vector>

#include "src/report/timeline/timeline.h"

namespace ttrace {

// Gives each a lane, the first where it fits, and sorts them by it, and in it
// by their beginnings, what is around others before them. One that fits no lane
// is cut off where what it lies in ends, in the last: a rank's modules run one
// after the other, so these are few.
void PutInLanes(std::vector<TimelineSlice>* slices);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_TIMELINE_LANES_H_
