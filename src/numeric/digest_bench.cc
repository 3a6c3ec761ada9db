// Digests of memory, beside XXH3 (64 bits, of one contiguous string) and mere
// reading of the same bytes.

#include <benchmark/benchmark.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "src/numeric/beside_read_bench.h"
#include "src/numeric/digest_kernel.h"

namespace ttrace {
namespace {

constexpr int64_t kL2 = int64_t{1} << 18;
constexpr int64_t kDram = int64_t{1} << 27;

AlignedBytes Input(int64_t count) {
  std::mt19937_64 rng(1);
  std::vector<std::byte> period(4099);
  for (std::byte& byte : period) byte = static_cast<std::byte>(rng());
  AlignedBytes out(static_cast<size_t>(count));
  const std::span<std::byte> bytes = out.span();
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = period[i % 4099];
  return out;
}

template <class Hash>
void Time(benchmark::State& state, const Hash& hash) {
  AlignedBytes input = Input(state.range(0));
  const std::span<const std::byte> bytes = input.span();
  // Cut in two, anywhere, it is the same.
  const size_t n = bytes.size();
  const auto whole = PositionalRun(bytes.data(), 0, n);
  const auto a = PositionalRun(bytes.data(), 0, n / 3);
  const auto b = PositionalRun(bytes.data() + n / 3, n / 3, n - n / 3);
  if (a[0] + b[0] != whole[0] || a[1] + b[1] != whole[1]) {
    state.SkipWithError("it is wrong");
  }
  TimeBesideRead(state, bytes,
                 [&] { benchmark::DoNotOptimize(hash(bytes.data(), n)); });
}

void BM_Positional(benchmark::State& state) {
  Time(state,
       [](const std::byte* p, size_t n) { return PositionalRun(p, 0, n)[0]; });
}
BENCHMARK(BM_Positional)->Name("digest/positional")->Arg(kL2)->Arg(kDram);

template <size_t itemsize>
void BM_Both(benchmark::State& state) {
  Time(state, [](const std::byte* p, size_t n) {
    return DigestRun(p, 0, n / itemsize, itemsize).multiset;
  });
}
BENCHMARK(BM_Both<4>)->Name("digest/both/4_bytes")->Arg(kL2)->Arg(kDram);
BENCHMARK(BM_Both<2>)->Name("digest/both/2_bytes")->Arg(kL2)->Arg(kDram);
BENCHMARK(BM_Both<1>)->Name("digest/both/1_byte")->Arg(kL2)->Arg(kDram);

void BM_XXH3(benchmark::State& state) {
  Time(state, [](const std::byte* p, size_t n) { return XXH3_64bits(p, n); });
}
BENCHMARK(BM_XXH3)->Name("digest/xxh3")->Arg(kL2)->Arg(kDram);

}  // namespace
}  // namespace ttrace
