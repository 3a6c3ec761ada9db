// RecordTimes: when a rank recorded what it recorded, as its index keeps it.
//
// Nothing is judged by times, so no line of a record has one: they are notes,
// one for all records of a leg, of which a record is the digits of the
// microseconds since the one before. That is 4 bytes instead of the 20 of a key
// of its own, and readers of records meet nothing new.
//
// Thread safety: one thread; static functions from any.

#ifndef TTRACE_SRC_TRACE_WRITING_RECORD_TIMES_H_
#define TTRACE_SRC_TRACE_WRITING_RECORD_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

inline constexpr std::string_view kRecordTimesNote = "record_times";
inline constexpr std::string_view kClockNote = "clock";

class RecordTimes {
 public:
  // Microseconds of CLOCK_MONOTONIC, which Python calls time.monotonic.
  static int64_t Now();

  // The note by which times of several ranks are laid side by side:
  // "monotonic_us" and "realtime_us" at one moment, and "boot", equal for
  // processes that read the same monotonic clock ("" if that is not known).
  static std::string ClockJson();

  // REQUIRES: sequence is that of the record before plus 1, unless empty()
  void Add(int64_t sequence, int64_t time_us);

  bool empty() const { return steps_.empty(); }
  // More would make a line that is too long.
  bool full() const { return steps_.size() >= kMost; }

  // The note of all that was added: "first", its sequence, "begin_us", and
  // "steps_us" from each to the next. What was deferred goes back in time.
  // Empty afterwards.
  // REQUIRES: !empty()
  std::string TakeJson();

 private:
  static constexpr size_t kMost = 32768;  // of 21 bytes at most: 0.7 MB

  int64_t first_ = 0;
  int64_t begin_us_ = 0;
  int64_t last_us_ = 0;
  std::vector<int64_t> steps_;  // the first is 0
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITING_RECORD_TIMES_H_
