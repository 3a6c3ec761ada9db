#include "src/trace/writing/arrivals.h"

#include <algorithm>
#include <thread>

namespace ttrace {
namespace {

// A device is asked: a call that waits for it could not be ended.
constexpr std::chrono::milliseconds kPoll(1);

}  // namespace

Status Arrivals::Await(DeviceCopier& from, DeviceCopier::Arrival arrival) {
  const Clock::rep begin = Now();
  while (true) {
    TTRACE_ASSIGN_OR_RETURN(const bool arrived, from.HasArrived(arrival));
    if (arrived) {
      from.Forget(arrival);
      return Done{};
    }
    const Clock::rep end = end_;  // in the far future, before End()
    if (Now() - std::max(begin, end) >= patience_.count()) gave_up_ = true;
    if (gave_up_) {
      return Error(ErrorCode::kIo, "the device has not delivered a tensor");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace ttrace
