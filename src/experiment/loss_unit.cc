#include "src/experiment/loss_unit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "src/compare/compare_tensor.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/experiment/parameter_roles.h"
#include "src/experiment/simplest_ratio.h"

namespace ttrace {
namespace {

// Of a ratio, above or below the line; 2^20 beside a loss scale of 2^43 still
// fits into the 64 bits of a Scale. Loops divide by ranks, rows and tokens.
constexpr int64_t kLargestTerm = 1 << 20;
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

}  // namespace

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
