#include "src/judge/judgement.h"

#include <utility>

namespace ttrace {

std::string_view ToString(TensorVerdict verdict) {
  switch (verdict) {
    case TensorVerdict::kBitwiseEqual:
      return "bitwise_equal";
    case TensorVerdict::kWithin:
      return "within";
    case TensorVerdict::kSuspect:
      return "suspect";
    case TensorVerdict::kDiverged:
      return "diverged";
    case TensorVerdict::kNotCheckable:
      return "not_checkable";
    case TensorVerdict::kUnmatched:
      return "unmatched";
  }
  return "unknown";
}

std::string_view ToString(Statistic statistic) {
  switch (statistic) {
    case Statistic::kNorm:
      return "norm";
    case Statistic::kProjection:
      return "projection";
    case Statistic::kElement:
      return "element";
    case Statistic::kBlock:
      return "block";
    case Statistic::kPiece:
      return "piece";
    case Statistic::kMismatches:
      return "mismatches";
    case Statistic::kRouting:
      return "routing";
    case Statistic::kRepeat:
      return "repeat";
    case Statistic::kStep:
      return "step";
  }
  return "?";
}

std::string_view ToString(Origin origin) {
  switch (origin) {
    case Origin::kNoBound:
      return "none";
    case Origin::kNoise:
      return "noise";
    case Origin::kFloor:
      return "floor";
    case Origin::kRepeat:
      return "reference_replay";
    case Origin::kReferenceFp32:
      return "reference_fp32";
    case Origin::kReferenceRounds:
      return "reference_rounding";
    case Origin::kLargestOfMany:
      return "largest_of_many";
    case Origin::kRandomFactor:
      return "random_factor";
    case Origin::kEqual:
      return "equal";
    case Origin::kPrimitive:
      return "primitive";
    case Origin::kStepRounding:
      return "step_rounding";
    case Origin::kLongSum:
      return "long_sum";
  }
  return "?";
}

const Test* LegJudgement::Find(Statistic statistic) const {
  for (const Test& test : tests) {
    if (test.statistic == statistic && test.ranks.empty()) return &test;
  }
  return nullptr;
}

Reason WhyNotCheckable(const LegJudgement& leg) {
  Reason reason;
  if (leg.reduction_unknown) return Because(ReasonKind::kReducedUnknown);
  if (leg.overflow) {
    reason.kind = ReasonKind::kOverflow;
    reason.counts = {leg.stats.nonfinite_cand, leg.stats.nonfinite_ref};
    return reason;
  }
  if (leg.uncertain) {
    reason.kind = ReasonKind::kUncertain;
    reason.numbers = {leg.stats.AtLow().rel_err(), leg.stats.AtHigh().rel_err(),
                      leg.bound};
    if (leg.reordered) reason.detail = "reordered";
    return reason;
  }
  reason.kind =
      leg.tests.empty() ? ReasonKind::kNoNoiseLegs : ReasonKind::kBoundTooWide;
  if (!leg.tests.empty()) reason.numbers = {leg.bound};
  return reason;
}

void LegJudgement::Add(Test test) {
  const bool decides =
      deciding_test < 0 || test.headroom > deciding()->headroom;
  tests.push_back(std::move(test));
  if (!decides) return;
  deciding_test = static_cast<int>(tests.size()) - 1;
  headroom = tests.back().headroom;
}

}  // namespace ttrace
