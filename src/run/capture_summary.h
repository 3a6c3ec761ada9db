// What a run under capture has written so far, and what it came to.

#ifndef TTRACE_SRC_RUN_CAPTURE_SUMMARY_H_
#define TTRACE_SRC_RUN_CAPTURE_SUMMARY_H_

#include <map>
#include <string>
#include <vector>

#include "src/trace/reader.h"
#include "ttrace/status.h"

namespace ttrace {

// Watches a trace folder while ranks write to it. Cheap: looks at the last line
// of each index, and only at those that grew.
//
// Thread safety: one thread at a time.
class CaptureWatch {
 public:
  explicit CaptureWatch(std::string folder) : folder_(std::move(folder)) {}

  // Looks again.
  void Update();

  int ranks_closed() const { return ranks_closed_; }
  int world_size() const { return world_size_; }  // 0: no rank is there yet
  bool AllClosed() const {
    return world_size_ > 0 && ranks_closed_ >= world_size_;
  }

 private:
  struct RankIndex {
    int restart = -1;
    int64_t bytes = -1;
    bool closed = false;
  };

  std::string folder_;
  std::map<int, RankIndex> ranks_;
  int ranks_closed_ = 0;
  int world_size_ = 0;
};

// What a finished run left behind.
struct CaptureSummary {
  int iterations = 0;  // sealed in leg `leg` by every rank
  int world_size = 0;
  // How many launches more the legs need: no rank could replay.
  bool one_launch_per_leg = false;
  std::vector<std::string> skipped_legs;  // named in notes "leg_skipped"
  // Why there is nothing to check, in full sentences; empty: there is.
  std::string problem;
  // What the user should know although there is something, one line each.
  std::vector<std::string> warnings;
};

// Reads the trace in `folder`, of which `iterations_asked` iterations of `leg`
// were wanted.
CaptureSummary SummarizeCapture(const std::string& folder,
                                const std::string& leg, int iterations_asked);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_CAPTURE_SUMMARY_H_
