// A term of a sum over ranks: read, widened and added to doubles, beside the
// same by a loop over elements. 2^15 elements: what a cache holds.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

#include "src/numeric/widen.h"

namespace ttrace {
namespace {

constexpr size_t kElements = size_t{1} << 15;

template <DType dtype>
void BM_AddTerm(benchmark::State& state) {
  constexpr auto kItemsize = static_cast<size_t>(Info(dtype).itemsize);
  const std::vector<std::byte> in(kElements * kItemsize, std::byte{0x3C});
  std::vector<double> sum(kElements, 0.5);
  AddWidened(dtype, in.data(), kElements, 0.25, sum.data());
  for (const double x : sum) {
    if (x != 0.5 + 0.25 * WidenElement(dtype, in.data())) {
      state.SkipWithError("it is wrong");
    }
  }
  for (auto _ : state) {
    AddWidened(dtype, in.data(), kElements, 0.25, sum.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * int64_t{kElements});
}
BENCHMARK(BM_AddTerm<DType::kF32>)->Name("add_term/fp32");
BENCHMARK(BM_AddTerm<DType::kBF16>)->Name("add_term/bf16");
BENCHMARK(BM_AddTerm<DType::kF16>)->Name("add_term/fp16");
BENCHMARK(BM_AddTerm<DType::kF64>)->Name("add_term/fp64");
BENCHMARK(BM_AddTerm<DType::kF8E4M3FN>)->Name("add_term/e4m3fn");

template <DType dtype>
void BM_AddTermByElements(benchmark::State& state) {
  constexpr auto kItemsize = static_cast<size_t>(Info(dtype).itemsize);
  const std::vector<std::byte> in(kElements * kItemsize, std::byte{0x3C});
  std::vector<double> row(kElements);
  std::vector<double> sum(kElements, 0.5);
  for (auto _ : state) {
    for (size_t i = 0; i < kElements; ++i) {
      row[i] = WidenElement(dtype, in.data() + i * kItemsize);
    }
    for (size_t i = 0; i < kElements; ++i) sum[i] += 0.25 * row[i];
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * int64_t{kElements});
}
BENCHMARK(BM_AddTermByElements<DType::kF32>)->Name("by_elements/fp32");
BENCHMARK(BM_AddTermByElements<DType::kBF16>)->Name("by_elements/bf16");
BENCHMARK(BM_AddTermByElements<DType::kF16>)->Name("by_elements/fp16");
BENCHMARK(BM_AddTermByElements<DType::kF64>)->Name("by_elements/fp64");

}  // namespace
}  // namespace ttrace
