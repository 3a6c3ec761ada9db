// D: the candidate's values lie on a coarser grid than the reference's.
//
// Exact counting: a value has p significant bits or it does not. Of values with
// 24 random bits, one in 2^(24 - p) has only p.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/diagnose.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

constexpr int64_t kSampled = 1 << 16;
// Values on a grid of p bits among ones that are not: 32 of them by chance
// have a probability of 2^-32 or less, whatever the grid.
constexpr int64_t kFewest = 32;
// A tensor of flags or small integers lies on every grid; one that the
// reference itself has half on the grid says nothing.
constexpr double kReferenceShare = 0.5;

struct Grid {
  const char* name;
  int bits;  // significant bits, the implicit one included
};

constexpr Grid kGrids[] = {{"fp8 e5m2 (3 significant bits)", 3},
                           {"fp8 e4m3 (4 significant bits)", 4},
                           {"bfloat16 (8 significant bits)", 8},
                           {"float16 (11 significant bits)", 11}};

bool OnGrid(double value, int bits) {
  int exponent = 0;
  const double mantissa = std::ldexp(std::frexp(value, &exponent), bits);
  return mantissa == std::floor(mantissa);
}

struct Count {
  int64_t values = 0;
  int64_t on_grid = 0;
};

Count CountOnGrid(const std::vector<double>& values, int bits) {
  Count out;
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

std::optional<Diagnosis> LostPrecision(const Evidence& evidence) {
  if (evidence.leg == nullptr || evidence.reference == nullptr ||
      evidence.candidate == nullptr ||
      !Info(evidence.candidate->pieces.front().dtype()).floating) {
    return std::nullopt;
  }
  const auto pair = SamplePair(*evidence.reference, *evidence.candidate,
                               kSampled, evidence.compare);
  if (!pair.ok()) return std::nullopt;
  for (const Grid& grid : kGrids) {
    const Count cand = CountOnGrid(pair->candidate, grid.bits);
    const Count ref = CountOnGrid(pair->reference, grid.bits);
    if (cand.values < kFewest || cand.on_grid != cand.values ||
        static_cast<double>(ref.on_grid) >
            kReferenceShare * static_cast<double>(ref.values)) {
      continue;
    }
    // Rounding to this grid, once or twice, and nothing else: u = 2^-bits.
    if (!(evidence.leg->err <= std::ldexp(2.0, -grid.bits))) continue;
    return Diagnosis{
        BugClass::kLostPrecision,
        fmt::format(
            "all {} values looked at are representable in {}, of the "
            "reference's {} of {}; the error of {:.1e} is what rounding "
            "to it makes{}",
            cand.values, grid.name, ref.on_grid, ref.values, evidence.leg->err,
            SampleWords(*pair)),
        static_cast<double>(grid.bits)};
  }
  // Scaled 8-bit formats: few distinct values, whatever the scale.
  constexpr int64_t kCodes = 128;  // magnitudes of an 8-bit code
  const auto n = static_cast<int64_t>(pair->candidate.size());
  const int64_t distinct = Distinct(pair->candidate);
  const int64_t distinct_ref = Distinct(pair->reference);
  // Sixteen times as many values in the reference: it is no table of few.
  if (n >= 32 * kCodes && distinct <= kCodes && distinct_ref >= 16 * kCodes &&
      evidence.leg->err <= 0.125) {
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
