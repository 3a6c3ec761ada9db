#include "src/trace/segments/verified_records.h"

namespace ttrace {

Status VerifiedRecords::Ensure(size_t index,
                               const std::function<Status()>& verify) {
  if (IsGood(index)) return Done{};
  const std::lock_guard<std::mutex> lock(being_verified_[index % kLocks]);
  if (IsGood(index)) return Done{};
  {
    const std::lock_guard<std::mutex> bad_lock(bad_mutex_);
    const auto known = bad_.find(index);
    if (known != bad_.end()) return known->second;
  }
  const Status status = verify();
  if (status.ok()) {
    states_[index].store(State::kGood, std::memory_order_release);
  } else {
    SetLookedAt(index, false);
    const std::lock_guard<std::mutex> bad_lock(bad_mutex_);
    bad_.emplace(index, status.error());
  }
  return status;
}

std::map<size_t, Error> VerifiedRecords::bad() const {
  const std::lock_guard<std::mutex> lock(bad_mutex_);
  return bad_;
}

}  // namespace ttrace
