#include "src/report/timeline/clocks.h"

#include <algorithm>
#include <limits>

#include "src/trace/recorded_times.h"

namespace ttrace {

RunClock::RunClock(const std::vector<std::shared_ptr<const Trace>>& traces) {
  std::map<Key, RecordedTimes> recorded;
  for (size_t i = 0; i < traces.size(); ++i) {
    for (const RankTrace& rank : traces[i]->ranks()) {
      recorded.emplace(Key(i, rank.meta.rank), ReadRecordedTimes(rank));
    }
  }
  // Processes of one machine read one monotonic clock, so that one offset to
  // its wall clock serves them all and keeps their order.
  std::map<std::string, int64_t> machines;
  int unknown = 0;
  for (const auto& [key, times] : recorded) {
    if (!times.clocks || times.runs.empty()) {
      axis_ = Timeline::Axis::kOrder;
      continue;
    }
    const int64_t own = times.clocks->realtime_us - times.clocks->monotonic_us;
    if (times.clocks->boot.empty()) ++unknown;
    offsets_[key] =
        times.clocks->boot.empty()
            ? own
            : machines.emplace(times.clocks->boot, own).first->second;
  }
  machines_ = std::max(1, static_cast<int>(machines.size()) + unknown);
  for (size_t i = 0; i < traces.size(); ++i) {
    for (const Record& record : traces[i]->records()) {
      const Key key(i, record.rank());
      auto& times = times_[key];
      if (axis_ == Timeline::Axis::kOrder) {
        times.emplace_hint(times.end(), record.sequence(), record.sequence());
        continue;
      }
      const auto time = recorded.at(key).At(record.sequence());
      const int64_t before =
          times.empty()
              ? recorded.at(key).runs.begin()->second.front() + offsets_.at(key)
              : times.rbegin()->second;
      times.emplace_hint(times.end(), record.sequence(),
                         time ? *time + offsets_.at(key) : before);
    }
  }
  PutAtZero();
}

void RunClock::PutAtZero() {
  zero_us_ = std::numeric_limits<int64_t>::max();
  for (const auto& [key, times] : times_) {
    for (const auto& [sequence, time] : times) {
      zero_us_ = std::min(zero_us_, time);
    }
  }
  for (auto& [key, times] : times_) {
    for (auto& [sequence, time] : times) time -= zero_us_;
  }
}

const std::map<int64_t, int64_t>& RunClock::TimesOf(size_t trace,
                                                    int rank) const {
  static const std::map<int64_t, int64_t> kNone;
  const auto found = times_.find({trace, rank});
  return found == times_.end() ? kNone : found->second;
}

int64_t RunClock::At(size_t trace, int rank, int64_t monotonic_us) const {
  // A collective may be called before anything is recorded.
  return std::max<int64_t>(
      0, monotonic_us + offsets_.at({trace, rank}) - zero_us_);
}

}  // namespace ttrace
