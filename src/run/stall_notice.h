// Says that nothing happens: after some time without a record, and then after
// twice that, and so on.

#ifndef TTRACE_SRC_RUN_STALL_NOTICE_H_
#define TTRACE_SRC_RUN_STALL_NOTICE_H_

#include <string>

#include "src/run/capture_watch.h"

namespace ttrace {

class StallNotice {
 public:
  // `after_seconds` 0: never.
  explicit StallNotice(double after_seconds)
      : first_(after_seconds), next_(after_seconds) {}

  // What to say `now`, or "". After CaptureWatch::Update.
  std::string Look(const CaptureWatch& watch,
                   CaptureWatch::Clock::time_point now);

 private:
  double first_;
  double next_;
  CaptureWatch::Clock::time_point since_{};
};

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_STALL_NOTICE_H_
