// Timeline: what the ranks of a run did and when, as far as its trace says, and
// where on it the findings of a result lie.
//
// Times are microseconds since the first record of the run. Ranks of one
// machine read one clock; those of several are laid side by side by their wall
// clocks, which have to be synchronised for that. A trace of an older ttrace
// has no times: then the order in each rank stands for them, a microsecond for
// each record, and ranks are not aligned.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_REPORT_TIMELINE_TIMELINE_H_
#define TTRACE_SRC_REPORT_TIMELINE_TIMELINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/align/collective.h"
#include "src/report/result_file.h"
#include "src/trace/reader.h"

namespace ttrace {

// Something that lasted: an iteration, a pass of a micro-batch, a module's
// forward or backward, an optimizer's step.
struct TimelineSlice {
  int64_t begin_us = 0;
  int64_t end_us = 0;
  std::string name;
  std::string category;  // "iteration", "forward", "backward", "optimizer", ...
  int micro_batch = -1;
  bool flagged = false;  // holds a tensor that is out of bounds
  // Slices of one lane nest; what would overlap is in the next lane.
  int lane = 0;
};

// A finding at the moment at which its tensor was recorded.
struct TimelineMark {
  int64_t at_us = 0;
  std::string name;
  std::string category;  // "culprit" or "out of bounds"
  // Words and what they say: "headroom", "why", ...
  std::vector<std::pair<std::string, std::string>> facts;
};

struct TimelineLeg {
  std::string leg;
  std::vector<TimelineSlice> slices;  // lane by lane, as they begin
  std::vector<TimelineMark> marks;    // by time
};

struct TimelineCollective {
  int64_t at_us = 0;
  uint64_t flow = 0;  // equal for the calls of it on all ranks; 0: of one only
  Collective call;
};

struct TimelineRank {
  int rank = 0;
  std::string place;              // "tp=1 dp=0"
  std::vector<TimelineLeg> legs;  // as they were run
  std::vector<TimelineCollective> collectives;
};

struct Timeline {
  enum class Axis { kTime, kOrder };
  Axis axis = Axis::kTime;
  int machines = 1;  // whose clocks are laid side by side
  std::string folder;
  std::vector<int> missing_ranks;
  // Findings of which no record is on it.
  int64_t unplaced = 0;
  std::vector<TimelineRank> ranks;
};

// Of the candidate's trace, its main folder first and then those of legs that
// had launches of their own.
// REQUIRES: traces is not empty
Timeline MakeTimeline(const std::vector<std::shared_ptr<const Trace>>& traces,
                      const ResultFile& result);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_TIMELINE_TIMELINE_H_
