// D: the candidate's values lie on a coarser grid than the reference's.
//
// Exact counting: a value has p significant bits or it does not. Of values with
// 24 random bits, one in 2^(24 - p) has only p.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

struct FormatGrid {
  const char* name;
  int bits;  // significant bits, the implicit one included
};

constexpr FormatGrid kFormatGrids[] = {{"fp8 e5m2 (3 significant bits)", 3},
                                       {"fp8 e4m3 (4 significant bits)", 4},
                                       {"bfloat16 (8 significant bits)", 8},
                                       {"float16 (11 significant bits)", 11}};

bool OnGrid(double value, int bits) {
  int exponent = 0;
  const double mantissa = std::ldexp(std::frexp(value, &exponent), bits);
  return mantissa == std::floor(mantissa);
}

struct GridCount {
  int64_t values = 0;
  int64_t on_grid = 0;
};

GridCount CountOnGrid(const std::vector<double>& values, int bits) {
  GridCount out;
  for (const double value : values) {
    if (!std::isfinite(value) || value == 0) continue;
    ++out.values;
    out.on_grid += OnGrid(value, bits);
  }
  return out;
}

int64_t Distinct(std::vector<double> values) {
  for (double& value : values) value = std::fabs(value);
  std::sort(values.begin(), values.end());
  return std::unique(values.begin(), values.end()) - values.begin();
}

}  // namespace

std::optional<Diagnosis> LostPrecision(const ValueView& view) {
  const SampledPair* pair = view.sample();
  if (pair == nullptr ||
      !Info(view.candidate().pieces.front().dtype()).floating) {
    return std::nullopt;
  }
  for (const FormatGrid& grid : kFormatGrids) {
    const GridCount cand = CountOnGrid(pair->candidate, grid.bits);
    const GridCount ref = CountOnGrid(pair->reference, grid.bits);
    if (cand.values < kFewestOnGrid || cand.on_grid != cand.values ||
        static_cast<double>(ref.on_grid) >
            kReferenceOnGrid * static_cast<double>(ref.values)) {
      continue;
    }
    // Rounding to this grid, once or twice, and nothing else: u = 2^-bits.
    if (!(view.leg().err <= std::ldexp(2.0, -grid.bits))) continue;
    return Diagnosis{
        BugClass::kLostPrecision,
        fmt::format(
            "all {} values looked at are representable in {}, of the "
            "reference's {} of {}; the error of {:.1e} is what rounding "
            "to it makes{}",
            cand.values, grid.name, ref.on_grid, ref.values, view.leg().err,
            SampleWords(*pair)),
        static_cast<double>(grid.bits)};
  }
  // Scaled 8-bit formats: few distinct values, whatever the scale.
  const auto n = static_cast<int64_t>(pair->candidate.size());
  const int64_t distinct = Distinct(pair->candidate);
  const int64_t distinct_ref = Distinct(pair->reference);
  if (n >= kFewestOnGrid * kCodes && distinct <= kCodes &&
      distinct_ref >= kMoreThanCodes * kCodes && view.leg().err <= 0.125) {
    return Diagnosis{
        BugClass::kLostPrecision,
        fmt::format("its {} values looked at have {} distinct magnitudes, the "
                    "reference's {}: they went through 8 bits",
                    n, distinct, distinct_ref),
        8};
  }
  return std::nullopt;
}

}  // namespace ttrace
