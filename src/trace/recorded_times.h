// When a rank recorded each of its records, read from the notes of its trace
// (writing/record_times.h).
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_TRACE_RECORDED_TIMES_H_
#define TTRACE_SRC_TRACE_RECORDED_TIMES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/trace/reader.h"

namespace ttrace {

struct RecordedTimes {
  // The machine's clocks at one moment, in microseconds.
  struct Clocks {
    int64_t monotonic_us = 0;
    int64_t realtime_us = 0;
    std::string boot;  // "": not known
  };
  std::optional<Clocks> clocks;
  // Of the first of several records in a row: their times, in microseconds of
  // the monotonic clock.
  std::map<int64_t, std::vector<int64_t>> runs;

  // Nothing where it was not noted: by an older ttrace, or because the process
  // was killed before its leg was sealed.
  std::optional<int64_t> At(int64_t sequence) const;
};

// Notes that make no sense are left out.
RecordedTimes ReadRecordedTimes(const RankTrace& rank);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_RECORDED_TIMES_H_
