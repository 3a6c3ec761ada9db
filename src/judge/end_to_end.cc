#include "src/judge/end_to_end.h"

#include <limits>

namespace ttrace {
namespace {

// Whether each run holds what the other does. What is padded further in one of
// them is there only once.
bool IsWhole(const TensorFacts& facts, const TensorComparison& compared) {
  if (facts.padded) {
    return compared.candidate_overlap == 0 && compared.reference_overlap == 0;
  }
  return compared.complete() && compared.common_gap == 0;
}

// Of one leg; none: it is whole.
Reason GapIn(const TensorFacts& facts, const LegFacts& leg) {
  if (!leg.trouble.empty()) {
    return Because(ReasonKind::kNotComparable, leg.trouble);
  }
  if (IsWhole(facts, leg.candidate)) return {};
  return MissingElements(leg.candidate);
}

void Add(const LegJudgement& leg, size_t index, bool tied, EndToEnd* out) {
  if (out->first == nullptr) out->first = &leg;
  out->equal = out->equal && leg.stats.bitwise_equal();
  if (leg.overflow) out->overflow = &leg;
  if (leg.uncertain) out->uncertain = &leg;
  const bool nonfinite = leg.nonfinite_by_fault();
  const double headroom =
      nonfinite ? std::numeric_limits<double>::infinity() : leg.headroom;
  if (headroom > 1 && tied) {
    out->routed_upstream = true;
    return;
  }
  out->nonfinite = out->nonfinite || nonfinite;
  if ((leg.checkable || nonfinite) &&
      (out->deciding_leg < 0 || headroom > out->headroom)) {
    out->deciding_leg = static_cast<int>(index);
    out->headroom = headroom;
  }
}

}  // namespace

Reason MissingElements(const TensorComparison& compared) {
  Reason missing = Because(ReasonKind::kElementsMissing);
  missing.counts = {compared.candidate_gap, compared.reference_gap,
                    compared.common_gap,
                    compared.candidate_overlap + compared.reference_overlap};
  return missing;
}

EndToEnd SeeEndToEnd(const TensorFacts& facts,
                     const std::vector<LegJudgement>& legs,
                     const std::vector<LegPlan>& plans,
                     const RoutingTies& ties) {
  EndToEnd out;
  size_t judged = 0;
  for (const LegFacts& leg : facts.legs) {
    const size_t index = judged;
    judged += leg.usable;
    if (plans[leg.plan].isolated) continue;
    Reason gap = GapIn(facts, leg);
    if (!gap.none()) out.gap = std::move(gap);
    if (!leg.usable) continue;
    Add(legs[index], index, ties.Affects(facts, leg.plan), &out);
  }
  if (!out.gap.none() && !facts.complete) {
    out.gap = Because(ReasonKind::kIterationCut);
  }
  return out;
}

}  // namespace ttrace
