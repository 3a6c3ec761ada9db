// How fast memory is compared with memory, beside how fast the same memory can
// merely be read. Each case checks its result before it is timed.
//
//   compare_bench --benchmark_min_time=1
//
// "share" is compare bandwidth / read bandwidth of the same bytes in the same
// run: 1 means that comparing costs no more than looking.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/compare/compare_kernel.h"
#include "src/numeric/beside_read_bench.h"

namespace ttrace {
namespace {

std::vector<std::byte> Values(DType dtype, size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  // A period suffices: nothing here depends on values.
  std::vector<float> period(1 << 12);
  for (float& x : period) x = normal(rng);
  const auto size = static_cast<size_t>(Info(dtype).itemsize);
  std::vector<std::byte> bytes(count * size);
  for (size_t i = 0; i < count; ++i) {
    const float x = period[i % period.size()];
    if (dtype == DType::kF64) {
      const auto wide = static_cast<double>(x);
      std::memcpy(bytes.data() + i * size, &wide, size);
    } else if (dtype == DType::kF16) {
      const auto half =
          static_cast<uint16_t>(0x3000 + (std::bit_cast<uint32_t>(x) & 0x7FF));
      std::memcpy(bytes.data() + i * size, &half, size);
    } else if (size == 1) {  // of moderate size and any fraction
      bytes[i] = static_cast<std::byte>(0x30 + i * 7 % 16);
    } else {
      // bfloat16 is the upper half: the last bytes of a little-endian float.
      std::memcpy(bytes.data() + i * size,
                  reinterpret_cast<const std::byte*>(&x) + 4 - size, size);
    }
  }
  return bytes;
}

// Best bandwidth of adding up 64-bit words, in bytes a second.
double ReadBandwidth(const std::vector<std::byte>& a,
                     const std::vector<std::byte>& b) {
  const size_t bytes = a.size() + b.size();
  const int repeats =
      static_cast<int>(std::max<size_t>(1, (size_t{64} << 20) / bytes));
  double best = 0;
  for (int round = 0; round < 8; ++round) {
    const double start = CpuSeconds();
    for (int i = 0; i < repeats; ++i) {
      benchmark::DoNotOptimize(ReadWords(a));
      benchmark::DoNotOptimize(ReadWords(b));
      benchmark::ClobberMemory();
    }
    best = std::max(
        best, static_cast<double>(bytes) * repeats / (CpuSeconds() - start));
  }
  return best;
}

bool ResultIsRight(const std::vector<std::byte>& ref, DType ref_dtype,
                   const std::vector<std::byte>& cand, DType cand_dtype,
                   size_t count, const ErrorStats& got) {
  // The exact path of the kernel, forced by a scale that is 1 to 15 digits.
  ErrorSums sums;
  const double scale = 1 + 1e-15;
  CompareRows({ref.data(), ref_dtype, 0, scale},
              {cand.data(), cand_dtype, 0, scale},
              {1, static_cast<int64_t>(count), 0, 0}, &sums);
  const ErrorStats want = sums.Stats();
  return got.count == want.count && got.mismatched == want.mismatched &&
         std::fabs(got.rel_err() - want.rel_err()) <= 1e-6 * want.rel_err();
}

// One row, or rows of `cols` from a reference of rows four times as wide. With
// `element_scale`, errors of single elements are measured as well.
void BM_Compare(benchmark::State& state, DType ref_dtype, DType cand_dtype,
                size_t count, int64_t cols, double element_scale) {
  const bool strided = cols != 0;
  const size_t ref_count = strided ? 4 * count : count;
  auto ref = Values(ref_dtype, ref_count, 1);
  const auto cand = Values(cand_dtype, count, 2);
  const int64_t rows = strided ? static_cast<int64_t>(count) / cols : 1;
  const CompareExtent extent = {rows, strided ? cols : int64_t(count), 0,
                                strided ? uint64_t(4 * cols) : 0,
                                element_scale};
  const CompareOperand r = {ref.data(), ref_dtype, 4 * cols, 1};
  const CompareOperand c = {cand.data(), cand_dtype, cols, 1};
  if (!strided) {
    ErrorSums sums;
    CompareRows(r, c, extent, &sums);
    if (!ResultIsRight(ref, ref_dtype, cand, cand_dtype, count, sums.Stats())) {
      state.SkipWithError("wrong result");
      return;
    }
  }
  // Strided: what it compares, packed, is what reading is measured on.
  const double read = ReadBandwidth(Values(ref_dtype, count, 1), cand);
  const auto bytes = static_cast<double>(
      count * static_cast<size_t>(Info(ref_dtype).itemsize +
                                  Info(cand_dtype).itemsize));
  double fastest = std::numeric_limits<double>::infinity();
  const int repeats =
      std::max(1, static_cast<int>(double(size_t{16} << 20) / bytes));
  for (auto _ : state) {
    const double start = CpuSeconds();
    for (int i = 0; i < repeats; ++i) {
      ErrorSums sums;
      CompareRows(r, c, extent, &sums);
      benchmark::DoNotOptimize(sums);
    }
    const double seconds = (CpuSeconds() - start) / repeats;
    fastest = std::min(fastest, seconds);
  }
  state.counters["GB/s"] = bytes / fastest / 1e9;
  state.counters["Gel/s"] = static_cast<double>(count) / fastest / 1e9;
  state.counters["read_GB/s"] = read / 1e9;
  state.counters["share"] = bytes / fastest / read;
  state.SetLabel(std::string(CompareTargetName()));
}

// Threads that begin at the same time, again and again: they wait for each
// other without giving up the processor.
class Team {
 public:
  explicit Team(int threads) {
    for (int t = 1; t < threads; ++t) {
      others_.emplace_back([this, t] {
        for (int round = 1;; ++round) {
          while (round_.load(std::memory_order_acquire) < round) {
          }
          if (work_ == nullptr) return;
          Begin();
          (*work_)(t);
          ++done_;
        }
      });
    }
  }
  ~Team() {
    work_ = nullptr;
    ++round_;
    for (std::thread& other : others_) other.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Seconds until each thread has done `work` of its number.
  double Seconds(const std::function<void(int)>& work) {
    work_ = &work;
    begun_ = 0;
    done_ = 0;
    ++round_;
    Begin();
    const auto start = std::chrono::steady_clock::now();
    work(0);
    while (done_ < static_cast<int>(others_.size())) {
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  }

 private:
  void Begin() {
    ++begun_;
    while (begun_ <= static_cast<int>(others_.size())) {
    }
  }

  const std::function<void(int)>* work_ = nullptr;
  std::atomic<int> round_ = 0;
  std::atomic<int> begun_ = 0;
  std::atomic<int> done_ = 0;
  std::vector<std::thread> others_;
};

// Threads that share a tensor, beside as many that merely read it, in turns and
// by the clock. The best of many short turns: some are not interrupted, also on
// a machine that does other things.
void BM_CompareOnThreads(benchmark::State& state, DType ref_dtype,
                         DType cand_dtype, size_t count, int threads) {
  const size_t part = count / static_cast<size_t>(threads);
  std::vector<std::vector<std::byte>> ref;
  std::vector<std::vector<std::byte>> cand;
  for (int t = 0; t < threads; ++t) {
    ref.push_back(Values(ref_dtype, part, 1));
    cand.push_back(Values(cand_dtype, part, 2));
  }
  std::vector<ErrorSums> sums(static_cast<size_t>(threads));
  Team team(threads);
  const std::function<void(int)> compare = [&](int t) {
    const auto n = static_cast<size_t>(t);
    sums[n] = {};
    CompareRows({ref[n].data(), ref_dtype, 0, 1},
                {cand[n].data(), cand_dtype, 0, 1},
                {1, static_cast<int64_t>(part), 0, 0, 0}, &sums[n]);
  };
  const std::function<void(int)> read = [&](int t) {
    const auto n = static_cast<size_t>(t);
    benchmark::DoNotOptimize(ReadWords(ref[n]));
    benchmark::DoNotOptimize(ReadWords(cand[n]));
    benchmark::ClobberMemory();
  };
  team.Seconds(compare);
  for (size_t n = 0; n < sums.size(); ++n) {
    if (!ResultIsRight(ref[n], ref_dtype, cand[n], cand_dtype, part,
                       sums[n].Stats())) {
      state.SkipWithError("wrong result");
      return;
    }
  }
  double fastest = std::numeric_limits<double>::infinity();
  double fastest_read = fastest;
  for (auto _ : state) {
    fastest_read = std::min(fastest_read, team.Seconds(read));
    fastest = std::min(fastest, team.Seconds(compare));
  }
  const auto bytes =
      static_cast<double>(part * static_cast<size_t>(threads) *
                          static_cast<size_t>(Info(ref_dtype).itemsize +
                                              Info(cand_dtype).itemsize));
  state.counters["GB/s"] = bytes / fastest / 1e9;
  state.counters["read_GB/s"] = bytes / fastest_read / 1e9;
  state.counters["share"] = fastest_read / fastest;
  state.SetLabel(std::string(CompareTargetName()));
}

// Bytes of both sides. What is to come from memory is larger than the caches
// of most machines, whatever the dtypes; a strided reference is four times as
// wide as what is read of it.
constexpr size_t kL2 = size_t{256} << 10;
constexpr size_t kDram = size_t{256} << 20;
constexpr size_t kTurn = size_t{128} << 20;

void Register() {
  const std::pair<DType, DType> pairs[] = {
      {DType::kF32, DType::kF32},       {DType::kBF16, DType::kBF16},
      {DType::kBF16, DType::kF32},      {DType::kF16, DType::kF16},
      {DType::kF64, DType::kF64},       {DType::kF64, DType::kF32},
      {DType::kF64, DType::kBF16},      {DType::kF8E4M3FN, DType::kF8E4M3FN},
      {DType::kF8E5M2, DType::kF8E5M2}, {DType::kF8E4M3FN, DType::kBF16},
  };
  for (const auto& [a, b] : pairs) {
    const std::string name =
        std::string(Info(a).torch_name) + "/" + std::string(Info(b).torch_name);
    const auto element =
        static_cast<size_t>(Info(a).itemsize + Info(b).itemsize);
    const auto add = [&, ref = a, cand = b](const std::string& where,
                                            size_t bytes, int64_t cols) {
      const size_t count = bytes / element / 512 * 512;
      for (const double element_scale : {0.0, 1.0}) {
        benchmark::RegisterBenchmark(
            (name + "/" + where + (element_scale > 0 ? "/elements" : ""))
                .c_str(),
            [=](benchmark::State& state) {
              BM_Compare(state, ref, cand, count, cols, element_scale);
            });
      }
    };
    add("L2", kL2, 0);
    add("DRAM", kDram, 0);
    for (const int threads : {1, 2}) {
      benchmark::RegisterBenchmark(
          (name + "/DRAM/threads:" + std::to_string(threads)).c_str(),
          [=, ref = a, cand = b](benchmark::State& state) {
            BM_CompareOnThreads(state, ref, cand, kTurn / element, threads);
          })
          ->UseRealTime();
    }
    if (a == b && a != DType::kF64) add("DRAM_rows_of_512", kTurn, 512);
  }
}

const bool kRegistered = (Register(), true);

}  // namespace
}  // namespace ttrace
