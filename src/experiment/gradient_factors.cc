#include "src/experiment/gradient_factors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

#include "src/compare/sample.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/compare/summaries/kept_sample.h"
#include "src/experiment/rounding.h"

namespace ttrace {
namespace {

// What is looked at: one factor of all parameters shows in a few of them, and
// in a part of each.
constexpr size_t kMostParameters = 31;
constexpr int64_t kMostElements = 1 << 16;
// As of a common factor of any tensor (judge/constants.h): two roundings of a
// scalar in either run, each of at most one unit.
constexpr double kScalarRoundoffs = 4;
// Independent errors of n elements move their common factor by their size over
// sqrt(n); six times that is met by chance once in 10^9.
constexpr double kDeviations = 6;
// A gradient that keeps less than this of its direction follows no factor.
constexpr double kLargestRest = 0.2;

using Values = std::vector<double>;

double Dot(const Values& a, const Values& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// `of` as a multiple of `to`.
struct Multiple {
  double factor = 0;
  double rest = 0;  // what the factor leaves, relative to it

  // Whatever the errors, by Cauchy-Schwarz.
  double AtMost() const { return kScalarRoundoffs * kFp32Roundoff + rest; }
  // Of errors of `count` elements that do not know of each other.
  double Likely(size_t count) const {
    return kScalarRoundoffs * kFp32Roundoff +
           kDeviations * rest / std::sqrt(static_cast<double>(count));
  }
};

std::optional<Multiple> MultipleOf(const Values& of, const Values& to) {
  const double square = Dot(to, to);
  if (!(square > 0)) return std::nullopt;
  Multiple out;
  out.factor = Dot(of, to) / square;
  double rest = 0;
  for (size_t i = 0; i < of.size(); ++i) {
    const double d = of[i] - out.factor * to[i];
    rest += d * d;
  }
  out.rest = std::sqrt(rest / square) / std::fabs(out.factor);
  if (!std::isfinite(out.rest)) return std::nullopt;
  return out;
}

// The first elements of a gradient.
SampledBox FirstOf(const Shape& shape) {
  Shape size = shape;
  int64_t room = kMostElements;
  for (size_t d = size.size(); d-- > 0;) {
    size[d] = std::min(size[d], room);
    room /= std::max<int64_t>(1, size[d]);
    room = std::max<int64_t>(1, room);
  }
  return {Shape(size.size(), 0), size};
}

// The same elements of all: the first ones, or where values were not kept those
// that were. Nothing if they are not there: who compares them will say why.
std::optional<std::array<Values, 4>> ReadAlike(
    const std::array<const TensorPieces*, 4>& gradients) {
  const Shape& shape = gradients[0]->global_shape();
  bool gives_values = true;
  for (const TensorPieces* pieces : gradients) {
    if (!pieces->MayBeWhole() || pieces->global_shape() != shape) {
      return std::nullopt;
    }
    gives_values &= !HasSummaries(*pieces);
  }
  std::vector<SampledBox> boxes = {FirstOf(shape)};
  if (!gives_values) {
    auto kept =
        PlanKept(shape, kMostElements,
                 {gradients[0], gradients[1], gradients[2], gradients[3]});
    if (!kept.ok()) return std::nullopt;
    boxes = *std::move(kept);
  }
  std::array<Values, 4> out;
  for (size_t i = 0; i < out.size(); ++i) {
    auto values = ReadKept(*gradients[i], boxes);
    if (!values.ok()) return std::nullopt;
    const bool finite = std::all_of(values->begin(), values->end(),
                                    [](double v) { return std::isfinite(v); });
    if (!finite) return std::nullopt;
    out[i] = *std::move(values);
  }
  return out;
}

// What one parameter shows.
struct OfParameter {
  Multiple before;   // the candidate's of the reference's
  Multiple stepped;  // the same
  double step = 0;
  double at_most = 0;  // by how much `step` may be off
  double likely = 0;
};

std::optional<OfParameter> Look(const Side& reference, const Side& candidate,
                                const TensorId& local) {
  TensorId reduced = local;
  reduced.role = Role::kGradReduced;
  const std::array<const TensorPieces*, 4> gradients = {
      reference.Find(kReal, local), reference.Find(kReal, reduced),
      candidate.Find(kReal, local), candidate.Find(kReal, reduced)};
  if (std::count(gradients.begin(), gradients.end(), nullptr) > 0) {
    return std::nullopt;
  }
  const auto read = ReadAlike(gradients);
  if (!read) return std::nullopt;
  const auto& [their_local, their_reduced, own_local, own_reduced] = *read;
  const size_t count = their_local.size();
  const auto before = MultipleOf(own_local, their_local);
  const auto stepped = MultipleOf(own_reduced, their_reduced);
  const auto their_step = MultipleOf(their_reduced, their_local);
  const auto own_step = MultipleOf(own_reduced, own_local);
  if (!before || !stepped || !their_step || !own_step ||
      std::max(their_step->rest, own_step->rest) > kLargestRest) {
    return std::nullopt;
  }
  OfParameter out;
  out.before = *before;
  out.stepped = *stepped;
  out.step = own_step->factor / their_step->factor;
  out.at_most = their_step->AtMost() + own_step->AtMost();
  out.likely = their_step->Likely(count) + own_step->Likely(count);
  // What differs in one run alone says how far `before` may be off.
  out.before.rest = before->Likely(count);
  return out;
}

GradientFactors Together(int iteration, const std::vector<OfParameter>& all) {
  const auto median = [&](const auto& get) {
    std::vector<double> values;
    std::transform(all.begin(), all.end(), std::back_inserter(values), get);
    return Median(std::move(values));
  };
  GradientFactors out;
  out.iteration = iteration;
  out.parameters = static_cast<int>(all.size());
  out.before = median([](const auto& p) { return p.before.factor; });
  out.stepped = median([](const auto& p) { return p.stepped.factor; });
  out.step = median([](const auto& p) { return p.step; });
  out.step_tolerance = median([](const auto& p) { return p.likely; });
  out.before_tolerance = median([](const auto& p) { return p.before.rest; });
  out.alike = static_cast<int>(
      std::count_if(all.begin(), all.end(), [&](const OfParameter& p) {
        return std::fabs(p.step / out.step - 1) <=
               p.at_most + out.step_tolerance;
      }));
  // Rounding to one side alone may have made so small a factor.
  const double at_most = median([](const auto& p) { return p.at_most; });
  if (std::fabs(out.step - 1) <= at_most) out.step = 1;
  return out;
}

std::vector<TensorId> LocalGradients(const Side& candidate, int iteration) {
  std::vector<TensorId> all;
  for (const auto& [id, pieces] : candidate.real()) {
    if (id.role == Role::kGradLocal && id.iteration == iteration) {
      all.push_back(id);
    }
  }
  std::vector<TensorId> some;
  const size_t every = (all.size() + kMostParameters - 1) / kMostParameters;
  for (size_t i = 0; i < all.size(); i += every) some.push_back(all[i]);
  return some;
}

}  // namespace

std::vector<GradientFactors> ReadGradientFactors(
    const Side& reference, const Side& candidate,
    const std::optional<IterationRange>& iterations) {
  std::vector<GradientFactors> out;
  if (!reference.facts().loss_unit_unknown &&
      !candidate.facts().loss_unit_unknown) {
    return out;
  }
  for (const int iteration : candidate.Iterations()) {
    if (iterations && !iterations->contains(iteration)) continue;
    std::vector<OfParameter> all;
    for (const TensorId& id : LocalGradients(candidate, iteration)) {
      if (const auto one = Look(reference, candidate, id)) all.push_back(*one);
    }
    if (!all.empty()) out.push_back(Together(iteration, all));
  }
  return out;
}

}  // namespace ttrace
