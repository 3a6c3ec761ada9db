// For benchmarks: how fast memory is worked on, beside how fast it can merely
// be read. The two take turns, because the bandwidth of a shared machine moves
// within seconds.

#ifndef TTRACE_SRC_NUMERIC_BESIDE_READ_BENCH_H_
#define TTRACE_SRC_NUMERIC_BESIDE_READ_BENCH_H_

#include <benchmark/benchmark.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>
#include <span>

namespace ttrace {

// Time of this thread: the machine may be shared.
inline double CpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Memory that begins with a line of cache, as tensors of torch do.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size)
      : size_(size), data_(hwy::AllocateAligned<std::byte>(size)) {}
  std::span<std::byte> span() { return {data_.get(), size_}; }

 private:
  size_t size_;
  hwy::AlignedFreeUniquePtr<std::byte[]> data_;
};

// Adds up 64-bit words. In place: a copy of them would go through the stack,
// and be slower than the memory.
inline uint64_t ReadWords(std::span<const std::byte> bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(bytes.data());
  const size_t count = bytes.size() / sizeof(uint64_t);
  uint64_t lanes[16] = {};
  for (size_t i = 0; i + 16 <= count; i += 16) {
    for (size_t l = 0; l < 16; ++l) lanes[l] += words[i + l];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

// Counters: the best of all iterations, and the share of the best read. The
// times that the library prints are those of work and read.
template <class Work>
void TimeBesideRead(benchmark::State& state, std::span<const std::byte> bytes,
                    const Work& work) {
  const auto size = static_cast<double>(bytes.size());
  const int repeats = std::max(1, static_cast<int>(0x1p24 / size));
  double read = std::numeric_limits<double>::infinity();
  double best = read;
  for (auto _ : state) {
    const double start = CpuSeconds();
    for (int i = 0; i < repeats; ++i) {
      benchmark::DoNotOptimize(ReadWords(bytes));
      benchmark::ClobberMemory();
    }
    const double middle = CpuSeconds();
    for (int i = 0; i < repeats; ++i) {
      work();
      benchmark::ClobberMemory();
    }
    read = std::min(read, (middle - start) / repeats);
    best = std::min(best, (CpuSeconds() - middle) / repeats);
  }
  state.counters["GiB/s"] = size / best / 0x1p30;
  state.counters["read_GiB/s"] = size / read / 0x1p30;
  state.counters["share"] = read / best;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_BESIDE_READ_BENCH_H_
