// RunClock: when each record of a run was made, on one axis for all ranks.
//
// Thread safety: const methods may be called from many threads.

#ifndef TTRACE_SRC_REPORT_TIMELINE_CLOCKS_H_
#define TTRACE_SRC_REPORT_TIMELINE_CLOCKS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/report/timeline/timeline.h"
#include "src/trace/reader.h"

namespace ttrace {

class RunClock {
 public:
  explicit RunClock(const std::vector<std::shared_ptr<const Trace>>& traces);

  Timeline::Axis axis() const { return axis_; }
  int machines() const { return machines_; }

  // By sequence, of the records of `rank` in traces[trace]; in microseconds
  // since the first of the run. What has no time of its own has that of the
  // record before it.
  const std::map<int64_t, int64_t>& TimesOf(size_t trace, int rank) const;

  // Of a moment of the rank's own monotonic clock. REQUIRES: axis() is kTime
  int64_t At(size_t trace, int rank, int64_t monotonic_us) const;

 private:
  using Key = std::pair<size_t, int>;
  void PutAtZero();

  Timeline::Axis axis_ = Timeline::Axis::kTime;
  int machines_ = 1;
  int64_t zero_us_ = 0;
  std::map<Key, int64_t> offsets_;  // to the wall clock
  std::map<Key, std::map<int64_t, int64_t>> times_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_TIMELINE_CLOCKS_H_
