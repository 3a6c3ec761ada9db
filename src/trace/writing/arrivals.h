// Arrivals: the wait for what devices deliver, which ends also where a device
// hangs and the process is to end.
//
// Thread safety: any number of threads.

#ifndef TTRACE_SRC_TRACE_WRITING_ARRIVALS_H_
#define TTRACE_SRC_TRACE_WRITING_ARRIVALS_H_

#include <atomic>
#include <chrono>
#include <limits>

#include "src/trace/device/device_copier.h"
#include "ttrace/status.h"

namespace ttrace {

class Arrivals {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Arrivals(Clock::duration patience) : patience_(patience) {}

  // Until `arrival` is there; then it is forgotten. Fails with kIo if the
  // device does, or after End() if nothing arrives for as long as the patience
  // lasts: once that was so, at once.
  Status Await(DeviceCopier& from, DeviceCopier::Arrival arrival);

  // From now on patience is limited.
  void End() { end_ = Now(); }

  // Whether it came to its end.
  bool gave_up() const { return gave_up_; }

 private:
  static Clock::rep Now() { return Clock::now().time_since_epoch().count(); }

  const Clock::duration patience_;
  std::atomic<Clock::rep> end_ = std::numeric_limits<Clock::rep>::max();
  std::atomic<bool> gave_up_ = false;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITING_ARRIVALS_H_
