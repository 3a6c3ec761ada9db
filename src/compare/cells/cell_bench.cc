// A table of cells beside the comparison of the same tensors as one.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "src/compare/cells/cell_comparer.h"
#include "src/compare/compare_kernel.h"

namespace ttrace {
namespace {

struct Pair {
  Layout layout;
  DType dtype = DType::kF32;
  std::vector<std::byte> ref;
  std::vector<std::byte> cand;

  Pair(DType type, int64_t rows, int64_t cols) : dtype(type) {
    layout.dims = {{{{0, rows}}, rows}, {{{0, cols}}, cols}};
    const auto bytes = static_cast<size_t>(rows * cols * Info(type).itemsize);
    ref.resize(bytes);
    cand.resize(bytes);
    std::mt19937 rng(1);
    std::uniform_real_distribution<float> values(0.5F, 1.5F);
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float pair[] = {values(rng), values(rng)};
      uint32_t bits[2];
      std::memcpy(bits, pair, sizeof(bits));
      const auto size = static_cast<size_t>(Info(type).itemsize);
      // A bfloat16 is the upper half of a float.
      const size_t from = sizeof(float) - size;
      const size_t at = static_cast<size_t>(i) * size;
      std::memcpy(&ref[at], reinterpret_cast<std::byte*>(&bits[0]) + from,
                  size);
      std::memcpy(&cand[at], reinterpret_cast<std::byte*>(&bits[1]) + from,
                  size);
    }
  }

  CellTable Cells() const {
    CellComparer comparer(dtype, layout, 0.5);
    comparer.Add(ref.data(), cand.data(), layout.local_count());
    return comparer.Take();
  }
  ErrorStats Whole() const {
    ErrorSums sums;
    CompareRows({ref.data(), dtype, 0, 1}, {cand.data(), dtype, 0, 1},
                {1, layout.local_count(), 0, 0, 0.5}, &sums);
    return sums.Stats();
  }
};

bool IsRight(const Pair& pair) {
  ErrorStats sum;
  for (const CellSums& cell : pair.Cells().cells) {
    sum.sum_sq_err += cell.err_err;
    sum.max_block_sq_err = std::fmax(sum.max_block_sq_err, cell.max_block);
    sum.max_elem = std::fmax(sum.max_elem, cell.max_elem);
  }
  const ErrorStats whole = pair.Whole();
  return std::fabs(sum.sum_sq_err / whole.sum_sq_err - 1) < 1e-5 &&
         sum.max_elem == whole.max_elem &&
         std::fabs(sum.max_block_sq_err / whole.max_block_sq_err - 1) < 1e-5;
}

void Compare(benchmark::State& state, DType dtype, bool by_cells) {
  const Pair pair(dtype, state.range(0), state.range(1));
  if (!IsRight(pair)) state.SkipWithError("it is wrong");
  for (auto _ : state) {
    if (by_cells) {
      benchmark::DoNotOptimize(pair.Cells().cells.data());
    } else {
      benchmark::DoNotOptimize(pair.Whole().sum_sq_err);
    }
  }
  const int64_t elements = pair.layout.local_count();
  state.SetItemsProcessed(state.iterations() * elements);
  state.SetBytesProcessed(state.iterations() * 2 * elements *
                          Info(dtype).itemsize);
}

void Shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t cols : {64, 1024, 8192}) {
    bench->Args({(int64_t{1} << 24) / cols, cols});
  }
}
BENCHMARK_CAPTURE(Compare, cells_fp32, DType::kF32, true)->Apply(Shapes);
BENCHMARK_CAPTURE(Compare, whole_fp32, DType::kF32, false)->Apply(Shapes);
BENCHMARK_CAPTURE(Compare, cells_bf16, DType::kBF16, true)->Apply(Shapes);
BENCHMARK_CAPTURE(Compare, whole_bf16, DType::kBF16, false)->Apply(Shapes);

}  // namespace
}  // namespace ttrace
