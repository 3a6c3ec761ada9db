#include "src/diagnose/shared_factor.h"

#include <algorithm>
#include <cmath>

#include "src/diagnose/constants.h"
#include "src/diagnose/scaled_parts.h"
#include "src/judge/one_factor.h"

namespace ttrace {
namespace {

// Null: it has no such leg, is within bounds there, or is too small.
const LegJudgement* LegToFit(const TensorJudgement& t, const Leg& name) {
  const auto leg =
      std::find_if(t.legs.begin(), t.legs.end(),
                   [&](const LegJudgement& one) { return one.leg == name; });
  return leg == t.legs.end() || !(leg->headroom > 1) ||
                 leg->stats.count < kFewestOfPart
             ? nullptr
             : &*leg;
}

}  // namespace

std::optional<SharedFactor> FactorOfOthers(const Evidence& evidence) {
  SharedFactor out;
  for (const TensorJudgement* t : evidence.affected) {
    if (t->id == evidence.judgement->id) continue;
    const LegJudgement* leg = LegToFit(*t, evidence.leg->leg);
    if (leg == nullptr) continue;
    if (leg->stats.estimated() || !IsOutByOneFactor(*leg)) return std::nullopt;
    const double alpha = leg->stats.projection();
    if (out.tensors == 0) out.alpha = alpha;
    if (!IsSameFactor(alpha, out.alpha, leg->bound)) return std::nullopt;
    ++out.tensors;
  }
  if (out.tensors < 2) return std::nullopt;
  return out;
}

double BeyondGivenFactor(const ErrorStats& stats, double alpha) {
  const double more = alpha - 1;
  const double rest = stats.sum_sq_err - 2 * more * stats.sum_err_ref +
                      more * more * stats.sum_sq_ref;
  return std::sqrt(std::fmax(0, rest) / stats.sum_sq_ref);
}

}  // namespace ttrace
