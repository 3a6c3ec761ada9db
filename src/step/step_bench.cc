// An optimizer's step made again: elements per second of one thread, of values
// that are in cache, as they are when a tile was read.

#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "src/step/step_formula.h"
#include "src/step/testing/float_step.h"

namespace ttrace {
namespace {

constexpr size_t kCount = 1 << 13;

struct Columns {
  explicit Columns(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> size(-5, 2);
    for (size_t f = 0; f < kStepFields; ++f) {
      fields.emplace_back(kCount);
      for (double& x : fields.back()) x = size(random);
      columns[f] = fields.back().data();
    }
  }

  std::vector<std::vector<double>> fields;
  StepColumns columns;
};

template <StepQuantity quantity>
void BM_Step(benchmark::State& state) {
  const Columns columns(1);
  StepSetting setting;
  setting.count = 10;
  setting.copy = DType::kBF16;
  const StepFormula formula(AdamW(), setting);
  std::vector<double> value(kCount);
  std::vector<double> bound(kCount);
  std::vector<double> headroom(kCount);
  const std::vector<double>& recorded =
      columns.fields[static_cast<size_t>(ResultOf(quantity))];
  const auto run = [&] {
    ExpectAfterStep(formula.constants(), quantity, columns.columns, kCount,
                    value.data(), bound.data());
    HeadroomsOfStep(recorded.data(), value.data(), bound.data(), kCount,
                    headroom.data());
  };
  run();
  for (size_t i = 0; i < kCount; i += 97) {
    StepElement element;
    for (size_t f = 0; f < kStepFields; ++f) element[f] = columns.fields[f][i];
    const ExpectedValue one = formula.Expect(quantity, element);
    if (one.value != value[i] || one.bound != bound[i]) {
      state.SkipWithError("it is wrong");
      return;
    }
  }
  for (auto _ : state) {
    run();
    benchmark::DoNotOptimize(headroom.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kCount));
}

BENCHMARK(BM_Step<StepQuantity::kFirst>)->Name("step/exp_avg");
BENCHMARK(BM_Step<StepQuantity::kSecond>)->Name("step/exp_avg_sq");
BENCHMARK(BM_Step<StepQuantity::kParameter>)->Name("step/parameter");
BENCHMARK(BM_Step<StepQuantity::kCopy>)->Name("step/working_copy");

}  // namespace
}  // namespace ttrace
