// How far a measurement is, for who shows it meanwhile.
//
// Thread safety: all members, from many threads; each is right by itself.

#ifndef TTRACE_SRC_MEASURE_MEASURE_PROGRESS_H_
#define TTRACE_SRC_MEASURE_MEASURE_PROGRESS_H_

#include <atomic>
#include <cstdint>

namespace ttrace {

struct MeasureProgress {
  std::atomic<int64_t> tensors{0};  // measured
  std::atomic<int64_t> tensors_total{0};
  std::atomic<int64_t> bytes_read{0};  // of both sides
  // What time is spent on, tensors and steps alike: about the bytes that each
  // reads. 0 in all: what there is to do is not known yet.
  std::atomic<int64_t> work{0};
  std::atomic<int64_t> work_total{0};
};

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_MEASURE_PROGRESS_H_
