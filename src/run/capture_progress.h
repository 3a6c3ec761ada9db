// How far a run under capture is: what its ranks have written into the trace
// folder, read while they do. Ranks do nothing for it.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_RUN_CAPTURE_PROGRESS_H_
#define TTRACE_SRC_RUN_CAPTURE_PROGRESS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "src/experiment/iteration_range.h"
#include "src/run/capture_cost.h"
#include "src/run/index_tail.h"
#include "src/run/time_left.h"
#include "ttrace/leg.h"

namespace ttrace {

// Of all ranks together, unless said otherwise.
struct CaptureProgress {
  int world_size = 0;  // 0: no rank is there yet
  int ranks_closed = 0;
  // Of the rank that is least far; -1: it has recorded nothing yet.
  int iteration = -1;
  Leg leg;
  // Executions of an iteration that every rank has completed, of how many.
  int parts = 0;
  int parts_total = 0;  // 0: not known yet
  int64_t records = 0;
  int64_t bytes = 0;                   // of tensors, on disk
  double bytes_per_second = 0;         // of the last seconds
  double seconds = 0;                  // since the command was started
  std::optional<double> seconds_left;  // until the capture is complete
};

class CaptureMeter {
 public:
  // Of a launch that captures these iterations, with or without reruns.
  CaptureMeter(std::string folder, IterationRange iterations, bool has_reruns)
      : folder_(std::move(folder)),
        iterations_(iterations),
        has_reruns_(has_reruns) {}

  // What the ranks said of their reruns, once all have.
  void SetCost(const CaptureCost& cost) { cost_ = cost; }

  // Looks again, `seconds` after the command was started. world_size and
  // ranks_closed are left to who knows them.
  CaptureProgress Look(double seconds);

 private:
  struct Rank {
    Rank(int restart_, std::string folder_);

    int restart;
    std::string folder;
    IndexTail index;
    int segment = 0;  // the last one known
    int64_t bytes_before = 0;
    int64_t bytes = 0;
  };

  void FindRanks();
  static void Measure(Rank* rank);
  PartsToCome ToCome(const Rank& slowest) const;

  std::string folder_;
  IterationRange iterations_;
  bool has_reruns_;
  std::optional<CaptureCost> cost_;
  std::map<int, Rank> ranks_;
  TimeLeft time_left_;
  size_t parts_ = 0;
  std::deque<std::pair<double, int64_t>> bytes_then_;  // (seconds, bytes)
};

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_CAPTURE_PROGRESS_H_
