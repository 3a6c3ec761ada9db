#include "src/experiment/loss_unit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "src/compare/compare_tensor.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/experiment/parameter_roles.h"
#include "src/experiment/rounding.h"
#include "src/experiment/simplest_ratio.h"

namespace ttrace {
namespace {

// What is looked at: one factor of all parameters shows in a few of them, and
// in a part of each.
constexpr size_t kMostParameters = 31;
constexpr int64_t kMostElements = 1 << 16;
// Of a ratio, above or below the line; 2^20 beside a loss scale of 2^43 still
// fits into the 64 bits of a Scale. Loops divide by ranks, rows and tokens.
constexpr int64_t kLargestTerm = 1 << 20;
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

// The first elements of a gradient. Nothing if they are not there: who compares
// them will say why.
std::optional<Values> FirstOf(const TensorPieces* pieces) {
  if (pieces == nullptr || !pieces->MayBeWhole() || HasSummaries(*pieces)) {
    return std::nullopt;
  }
  Shape size = pieces->global_shape();
  int64_t room = kMostElements;
  for (size_t d = size.size(); d-- > 0;) {
    size[d] = std::min(size[d], room);
    room /= std::max<int64_t>(1, size[d]);
    room = std::max<int64_t>(1, room);
  }
  auto values = ReadBox(*pieces, Shape(size.size(), 0), size);
  if (!values.ok()) return std::nullopt;
  const bool finite = std::all_of(values->begin(), values->end(),
                                  [](double v) { return std::isfinite(v); });
  if (!finite) return std::nullopt;
  return *std::move(values);
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
  const auto their_local = FirstOf(reference.Find(kReal, local));
  const auto their_reduced = FirstOf(reference.Find(kReal, reduced));
  const auto own_local = FirstOf(candidate.Find(kReal, local));
  const auto own_reduced = FirstOf(candidate.Find(kReal, reduced));
  if (!their_local || !their_reduced || !own_local || !own_reduced) {
    return std::nullopt;
  }
  const size_t count = their_local->size();
  if (their_reduced->size() != count || own_local->size() != count ||
      own_reduced->size() != count) {
    return std::nullopt;
  }
  const auto before = MultipleOf(*own_local, *their_local);
  const auto stepped = MultipleOf(*own_reduced, *their_reduced);
  const auto their_step = MultipleOf(*their_reduced, *their_local);
  const auto own_step = MultipleOf(*own_reduced, *own_local);
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

// Made of the loss, before any reduction.
bool IsOfLoss(Role role) {
  return role == Role::kLoss ||
         (IsGradient(role) && role != Role::kGradReduced);
}

// Nothing if it does not fit.
std::optional<Scale> Times(const Scale& a, const Scale& b) {
  const int64_t across = std::gcd(a.numerator, b.denominator);
  const int64_t down = std::gcd(b.numerator, a.denominator);
  Scale out;
  if (across == 0 || down == 0 ||
      __builtin_mul_overflow(a.numerator / across, b.numerator / down,
                             &out.numerator) ||
      __builtin_mul_overflow(a.denominator / down, b.denominator / across,
                             &out.denominator)) {
    return std::nullopt;
  }
  return out;
}

Scale Inverse(const Scale& scale) {
  return {scale.denominator, scale.numerator};
}

// The part of the unit that the values of an isolated leg still have. What
// arrives from the loss there is the candidate's, and what is computed from a
// gradient that was replaced is of the reference: which of the two is not
// recorded, so it is the one that is nearer in size.
Scale InIsolation(const Side& reference, const TensorPieces* own,
                  const TensorId& id, const Scale& unit) {
  const TensorPieces* theirs = reference.FindSameValue(kReal, id);
  if (own == nullptr || theirs == nullptr) return {};
  const auto own_square = SumOfSquares(*own);
  const auto their_square = SumOfSquares(*theirs);
  if (!own_square.ok() || !their_square.ok()) return {};
  const double apart = std::log(own_square->sum / their_square->sum) / 2;
  if (!std::isfinite(apart)) return {};
  return std::fabs(apart + std::log(unit.value())) < std::fabs(apart) ? unit
                                                                      : Scale{};
}

// Declares the unit for one tensor of the candidate.
void Declare(const Side& reference, const TensorId& id, const Scale& unit,
             Side* candidate) {
  const bool of_loss = IsOfLoss(id.role);
  std::map<Leg, Scale> of_leg;
  for (const Leg& leg : candidate->Legs()) {
    Scale& scale = of_leg[leg];
    if (!leg.is_isolated()) {
      if (of_loss) scale = unit;
    } else if (id.role == Role::kLoss) {
      scale = unit;
    } else {
      // A reduction does again to what was replaced what is taken out of it.
      scale = InIsolation(reference, candidate->Find(leg, id), id,
                          of_loss ? unit : Inverse(unit));
    }
  }
  candidate->Reread(id, [&](RecordFields* record) {
    const auto found = of_leg.find(record->leg);
    if (found == of_leg.end()) return;
    if (const auto scale = Times(record->scale, found->second)) {
      record->scale = *scale;
    }
  });
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

std::optional<Scale> UnitOfLoss(const GradientFactors& factors) {
  if (2 * factors.alike <= factors.parameters || !(factors.step > 0) ||
      !(factors.before > 0) || !(factors.stepped > 0) ||
      // The side that is closer to the reference's is the one that is right.
      std::fabs(std::log(factors.stepped)) >=
          std::fabs(std::log(factors.before))) {
    return std::nullopt;
  }
  double low = factors.step * (1 - factors.step_tolerance);
  double high = factors.step * (1 + factors.step_tolerance);
  if (low <= 1 && 1 <= high) return std::nullopt;
  // Where gradients before the reduction have the factor, they tell it too, and
  // better where the reduction rounds more than backward does.
  const double low_before = (1 - factors.before_tolerance) / factors.before;
  const double high_before = (1 + factors.before_tolerance) / factors.before;
  if (std::max(low, low_before) <= std::min(high, high_before)) {
    low = std::max(low, low_before);
    high = std::min(high, high_before);
  }
  return SimplestRatio(low, high, kLargestTerm);
}

std::vector<RunNote> SettleLossUnits(
    const Side& reference, const std::vector<GradientFactors>& factors,
    Side* candidate) {
  std::map<std::pair<int64_t, int64_t>, std::set<int>> settled;
  for (const GradientFactors& of_iteration : factors) {
    const std::optional<Scale> unit = UnitOfLoss(of_iteration);
    if (!unit) continue;
    std::vector<TensorId> ids;
    for (const auto& [id, pieces] : candidate->real()) {
      if (id.iteration == of_iteration.iteration &&
          (id.role == Role::kLoss || IsGradient(id.role))) {
        ids.push_back(id);
      }
    }
    for (const TensorId& id : ids) Declare(reference, id, *unit, candidate);
    settled[{unit->numerator, unit->denominator}].insert(
        of_iteration.iteration);
  }
  std::vector<RunNote> notes;
  for (const auto& [unit, iterations] : settled) {
    notes.push_back(
        {NoteKind::kLossUnit,
         fmt::format(
             "a convention of scaling: the candidate's loss and its "
             "gradients before the reduction are {:.6g} x the "
             "reference's, and what is stepped is not; they are "
             "compared without that factor ({} {})",
             static_cast<double>(unit.second) / static_cast<double>(unit.first),
             iterations.size() == 1 ? "iteration" : "iterations",
             fmt::join(iterations, ", ")),
         ""});
  }
  return notes;
}

}  // namespace ttrace
