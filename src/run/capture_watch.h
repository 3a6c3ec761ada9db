// What a run under capture has written so far.

#ifndef TTRACE_SRC_RUN_CAPTURE_WATCH_H_
#define TTRACE_SRC_RUN_CAPTURE_WATCH_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace ttrace {

// Watches a trace folder while ranks write to it. Cheap: looks at the last line
// of each index, and only at those that grew.
//
// Thread safety: one thread at a time.
class CaptureWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CaptureWatch(std::string folder) : folder_(std::move(folder)) {}

  // Looks again.
  void Update();

  int ranks_closed() const { return ranks_closed_; }
  int world_size() const { return world_size_; }  // 0: no rank is there yet
  bool AllClosed() const {
    return world_size_ > 0 && ranks_closed_ >= world_size_;
  }
  // All are closed, and none because its capture gave up or its process ended.
  bool AllComplete() const { return AllClosed() && incomplete_ == 0; }

  // When an index last grew, or when the watch began.
  Clock::time_point last_growth() const { return last_growth_; }

  // What each rank wrote last: "rank 0: output of decoder.layers.3 (iteration
  // 1, leg noise.2); rank 1: ...". Ranks at one place are named together.
  std::string LastRecords() const;

 private:
  struct RankIndex {
    int restart = -1;
    int64_t bytes = -1;
    bool closed = false;
    bool complete = false;
    std::string folder;
  };

  std::string folder_;
  std::map<int, RankIndex> ranks_;
  int ranks_closed_ = 0;
  int incomplete_ = 0;
  int world_size_ = 0;
  Clock::time_point last_growth_ = Clock::now();
};

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_CAPTURE_WATCH_H_
