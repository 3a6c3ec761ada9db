// Noise beside a plain copy of the same bytes: what is fused with it.

#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "src/numeric/noise.h"
#include "src/numeric/noise_kernel.h"

namespace ttrace {
namespace {

constexpr int64_t kElements = int64_t{1} << 24;

// Some elements against their definition.
template <class Bits>
bool IsRight(const std::vector<std::byte>& from,
             const std::vector<std::byte>& to, const NoiseKey& key, int p) {
  std::vector<uint32_t> words(kNoiseTile);
  for (size_t i = 0; i < kElements; i += 9973) {
    NoiseWords(key, i / kNoiseTile, 1, words.data());
    Bits x;
    Bits y;
    std::memcpy(&x, from.data() + i * sizeof(Bits), sizeof(Bits));
    std::memcpy(&y, to.data() + i * sizeof(Bits), sizeof(Bits));
    if (y != PerturbBits(x, words[i % kNoiseTile], p)) return false;
  }
  return true;
}

template <DType dtype, class Bits, int p>
void BM_Perturb(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(kElements * Info(dtype).itemsize);
  const std::vector<std::byte> from(bytes, std::byte{0x3F});
  std::vector<std::byte> to(bytes);
  Layout layout;
  layout.dims.push_back({{{0, kElements}}, kElements});
  const int64_t strides[] = {1};
  const NoiseKey key = MakeNoiseKey(1, "bench");
  if (!Perturb(key, layout, dtype, from.data(), strides, to.data(), strides)
           .ok() ||
      !IsRight<Bits>(from, to, key, p)) {
    state.SkipWithError("it is wrong");
  }
  for (auto _ : state) {
    const Status done =
        Perturb(key, layout, dtype, from.data(), strides, to.data(), strides);
    benchmark::DoNotOptimize(done.ok());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kElements);
  state.SetBytesProcessed(state.iterations() * 2 * static_cast<int64_t>(bytes));
}
BENCHMARK(BM_Perturb<DType::kBF16, uint16_t, 7>)->Name("bf16");
BENCHMARK(BM_Perturb<DType::kF16, uint16_t, 10>)->Name("fp16");
BENCHMARK(BM_Perturb<DType::kF32, uint32_t, 23>)->Name("fp32");

void BM_Copy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> from(bytes, std::byte{0x3F});
  std::vector<std::byte> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * static_cast<int64_t>(bytes));
}
BENCHMARK(BM_Copy)->Name("copy")->Arg(2 * kElements)->Arg(4 * kElements);

}  // namespace
}  // namespace ttrace
