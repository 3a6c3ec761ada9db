// Sketches of memory. 2^16 elements for L2, 2^25 for DRAM.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "src/numeric/beside_read_bench.h"
#include "src/numeric/sketch.h"

namespace ttrace {
namespace {

constexpr int64_t kL2 = int64_t{1} << 16;
constexpr int64_t kDram = int64_t{1} << 25;

template <DType dtype>
void BM_Sketch(benchmark::State& state) {
  const int64_t count = state.range(0);
  const auto bytes = static_cast<size_t>(count * Info(dtype).itemsize);
  AlignedBytes input(bytes);
  const std::span<std::byte> data = input.span();
  std::fill(data.begin(), data.end(), std::byte{0x3C});
  Layout layout;
  layout.dims.push_back({{{0, count}}, count});
  const int64_t strides[] = {1};
  const PlacedTensor tensor = {data.data(), dtype, strides, layout};
  Sketch once(1);
  Sketch twice(1);
  if (!once.Add(tensor, 2).ok() || !twice.Add(tensor).ok() ||
      !twice.Add(tensor).ok() || once.buckets() != twice.buckets()) {
    state.SkipWithError("it is wrong");
  }
  TimeBesideRead(state, data, [&] {
    Sketch sketch(1);
    benchmark::DoNotOptimize(sketch.Add(tensor).ok());
    benchmark::DoNotOptimize(sketch.buckets().data());
  });
}
BENCHMARK(BM_Sketch<DType::kF32>)->Name("sketch/fp32")->Arg(kL2)->Arg(kDram);
BENCHMARK(BM_Sketch<DType::kBF16>)->Name("sketch/bf16")->Arg(kL2)->Arg(kDram);
BENCHMARK(BM_Sketch<DType::kF8E4M3FN>)
    ->Name("sketch/e4m3fn")
    ->Arg(kL2)
    ->Arg(kDram);

}  // namespace
}  // namespace ttrace
