#include "src/run/stall_notice.h"

#include "src/base/format.h"

namespace ttrace {

std::string StallNotice::Look(const CaptureWatch& watch,
                              CaptureWatch::Clock::time_point now) {
  // What a run does after its capture is its own affair.
  if (first_ <= 0 || watch.AllClosed()) return "";
  if (watch.last_growth() != since_) {
    since_ = watch.last_growth();
    next_ = first_;
  }
  const double idle = std::chrono::duration<double>(now - since_).count();
  if (idle < next_) return "";
  next_ = 2 * idle;
  const std::string time = FormatSeconds(idle);
  if (watch.world_size() == 0) {
    return "no rank has begun to capture for " + time +
           "; the command is still running (a plain torch loop needs "
           "ttrace.attach(model, optimizer) after its optimizer is built)";
  }
  return "no rank wrote for " + time +
         "; last record of each rank: " + watch.LastRecords();
}

}  // namespace ttrace
