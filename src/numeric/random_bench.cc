// Random tensors, 2^24 elements.

#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "src/numeric/random_tensor.h"

namespace ttrace {
namespace {

constexpr int64_t kElements = int64_t{1} << 24;

template <DType dtype, Distribution distribution>
void BM_Fill(benchmark::State& state) {
  const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
  std::vector<std::byte> out(static_cast<size_t>(kElements) * itemsize);
  Layout layout;
  layout.dims.push_back({{{0, kElements}}, kElements});
  const int64_t strides[] = {1};
  const NoiseKey key = MakeNoiseKey(1, "bench");
  const auto fill = [&](const Layout& part, std::byte* to) {
    return FillRandom(key, distribution, 1, part, dtype, to, strides).ok();
  };
  // Some of it by itself is the same.
  Layout part;
  part.dims.push_back({{{777, 100}}, kElements});
  std::vector<std::byte> some(100 * itemsize);
  if (!fill(layout, out.data()) || !fill(part, some.data()) ||
      std::memcmp(some.data(), out.data() + 777 * itemsize, some.size()) != 0) {
    state.SkipWithError("it is wrong");
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(fill(layout, out.data()));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kElements);
}
BENCHMARK(BM_Fill<DType::kF32, Distribution::kNormal>)
    ->Name("random/normal/fp32");
BENCHMARK(BM_Fill<DType::kBF16, Distribution::kNormal>)
    ->Name("random/normal/bf16");
BENCHMARK(BM_Fill<DType::kF32, Distribution::kUniform>)
    ->Name("random/uniform/fp32");

}  // namespace
}  // namespace ttrace
