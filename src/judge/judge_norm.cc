#include "src/judge/judge_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "src/experiment/rounding.h"
#include "src/judge/constants.h"
#include "src/judge/norm_terms.h"

namespace ttrace {
namespace {

// What the way from the parts' norms to the reported one may round. Parts are
// squared and added in fp32 or better, in any order: n positive terms lose at
// most about sqrt(n) roundings of the result with any probability that matters
// (Higham, Mary 2019: lambda sqrt(n) u with lambda = sqrt(2 ln(2 / risk))), the
// square and the root one each. The value itself is rounded to its own dtype,
// once for each part if parts are of that dtype too.
double Bound(const ReportedNorm& facts, double risk) {
  const double lambda = std::sqrt(2 * std::log(2 / risk));
  const double sum =
      (lambda * std::sqrt(static_cast<double>(facts.parts)) + 4) *
      kFp32Roundoff;
  const double own = UnitRoundoff(facts.dtype);
  const double rounding = own > kFp32Roundoff ? 3 * own : 0;
  // The primitive may have added the elements of a pending sum one by one.
  const double pending = static_cast<double>(facts.largest_sum) * kFp32Roundoff;
  return sum + rounding + pending;
}

// The same where the primitive's word on the parts is not known: it may have
// added the largest part one by one.
double LooseBound(const ReportedNorm& facts, double risk) {
  return Bound(facts, risk) +
         static_cast<double>(facts.largest_part) * kFp32Roundoff;
}

// Of the two that the primitive gives where gradients are of low precision, the
// one that was taken. They differ by roundings of that precision at most.
double Expected(const ReportedNorm& facts) {
  const double widened = facts.primitive.value_or(facts.exact);
  const double rounded = facts.rounded.value_or(widened);
  return std::fabs(facts.reported - rounded) <
                 std::fabs(facts.reported - widened)
             ? rounded
             : widened;
}

Outcome ByNorm(const ReportedNorm& facts, const LegJudgement& leg) {
  Reason reason;
  if (leg.headroom > 1) {
    reason = Because(ReasonKind::kReportedNorm);
    reason.numbers = {facts.reported, Expected(facts)};
    if (const auto found = ExplainNorm(facts, leg.bound)) {
      reason.detail = found->whose;
      reason.counts = {found->count, found->coordinate};
      reason.numbers.push_back(found->weight);
    }
  }
  Outcome out =
      Settled(ByHeadroom(leg.headroom, leg.err == 0), std::move(reason));
  out.deciding_leg = 0;
  out.headroom = leg.headroom;
  return out;
}

}  // namespace

TensorJudgement JudgeReportedNorm(const std::optional<ReportedNorm>& facts,
                                  const TensorJudgement& before, double risk) {
  TensorJudgement out = before;
  if (before.reason.kind == ReasonKind::kDamaged) return out;
  if (!facts || !facts->unknown.empty()) {
    if (before.replicas_differ) return out;
    out.Conclude(NotCheckable(
        Because(ReasonKind::kNoGradients, facts ? facts->unknown : "")));
    return out;
  }
  const double expected = Expected(*facts);
  LegJudgement leg;
  leg.leg = kReal;
  Test test;
  test.value =
      expected == facts->reported
          ? 0
          : std::fabs(facts->reported - expected) / std::fabs(expected);
  test.bound =
      facts->primitive ? Bound(*facts, risk) : LooseBound(*facts, risk);
  test.headroom = test.value / test.bound;
  // A norm that is not finite is the gradients' doing, if they are not either.
  if (!std::isfinite(facts->reported) && !std::isfinite(expected)) {
    test.value = test.headroom = 0;
  } else if (!std::isfinite(test.headroom)) {
    test.headroom = std::numeric_limits<double>::infinity();
  }
  test.expected.origin = Origin::kPrimitive;
  test.expected.scale = test.bound;
  test.expected.factor = 1;
  leg.err = test.value;
  leg.bound = test.bound;
  leg.checkable = leg.bound <= kWidestBound;
  leg.Add(std::move(test));
  out.legs = {leg};
  const bool is_out = leg.checkable && leg.headroom > 1;
  if (before.replicas_differ && !is_out) {
    // Copies that differ stay what they were found to be. That each is the norm
    // of the gradients of its rank says whose doing it is: not its own.
    if (leg.checkable) {
      out.deciding_leg = 0;
      out.headroom = leg.headroom;
    }
    return out;
  }
  Outcome said =
      leg.checkable ? ByNorm(*facts, leg) : NotCheckable(WhyNotCheckable(leg));
  said.ranks = before.ranks;
  out.Conclude(std::move(said));
  return out;
}

}  // namespace ttrace
