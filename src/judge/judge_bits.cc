#include "src/judge/judge_bits.h"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/for_each.h"
#include "src/compare/compare_tensor.h"
#include "src/judge/end_to_end.h"

namespace ttrace {
namespace {

Reason Difference(const TensorFacts& facts, const TensorComparison& compared) {
  Reason reason;
  if (compared.fidelity == Fidelity::kValues) {
    reason = Because(ReasonKind::kElementsDiffer);
    reason.counts = {compared.total.mismatched, compared.total.count};
    reason.dtype = facts.dtype;
  } else {
    reason = Because(ReasonKind::kOtherDigest);
    reason.counts = {compared.reordered};
  }
  return reason;
}

Outcome OfLeg(const TensorFacts& facts, const LegFacts& leg) {
  if (!leg.trouble.empty()) {
    return NotCheckable(Because(ReasonKind::kNotComparable, leg.trouble));
  }
  const TensorComparison& compared = leg.candidate;
  if (!compared.total.bitwise_equal()) {
    Outcome out =
        Flagged(DifferingRanks(compared), Difference(facts, compared));
    out.headroom = std::numeric_limits<double>::infinity();
    out.deciding_leg = 0;
    return out;
  }
  if (!compared.complete()) {
    return Settled(TensorVerdict::kUnmatched,
                   facts.complete ? MissingElements(compared)
                                  : Because(ReasonKind::kIterationCut));
  }
  Outcome out = Settled(TensorVerdict::kBitwiseEqual, {});
  out.deciding_leg = 0;
  return out;
}

Outcome BitsOf(const TensorFacts& facts, const LegFacts* real) {
  if (!facts.damage.empty()) {
    return NotCheckable(Because(ReasonKind::kDamaged, facts.damage));
  }
  if (!facts.in_reference) {
    return Settled(
        TensorVerdict::kUnmatched,
        Because(ReasonKind::kNotInReference, WhyAbsent(facts.id.role)));
  }
  if (facts.reference_shape != facts.candidate_shape) {
    return Flagged({},
                   ShapesDiffer(facts.candidate_shape, facts.reference_shape));
  }
  if (real == nullptr) {
    return Settled(TensorVerdict::kUnmatched,
                   Because(ReasonKind::kNoCommonLeg));
  }
  return OfLeg(facts, *real);
}

// The norm of gradients, which is measured by what it is the norm of: here it
// is one number.
std::optional<LegFacts> NormOf(const RunContext& context, const TensorId& id) {
  if (id.role != Role::kGradNorm) return std::nullopt;
  const TensorPieces* reference = context.reference->Find(kReal, id);
  const TensorPieces* candidate = context.candidate->Find(kReal, id);
  if (reference == nullptr || candidate == nullptr) return std::nullopt;
  LegFacts out;
  auto compared = CompareTensor(*reference, *candidate);
  if (compared.ok()) {
    out.candidate = *std::move(compared);
    out.usable = true;
  } else {
    out.trouble = compared.error().message();
  }
  return out;
}

TensorJudgement Judge(const RunContext& context, const TensorFacts& facts) {
  TensorJudgement out;
  out.id = facts.id;
  out.order = facts.order;
  out.replicas = facts.replicas;
  const LegFacts* real = nullptr;
  for (const LegFacts& leg : facts.legs) {
    if (context.plans[leg.plan].candidate_leg == kReal) real = &leg;
  }
  const std::optional<LegFacts> norm = NormOf(context, facts.id);
  if (norm) real = &*norm;
  if (real != nullptr && real->usable) {
    LegJudgement leg;
    leg.leg = kReal;
    leg.stats = real->candidate.total;
    leg.fidelity = real->candidate.fidelity;
    leg.reordered = real->candidate.reordered;
    leg.err = leg.stats.bitwise_equal() ? 0 : leg.stats.rel_err();
    leg.ranks = DifferingRanks(real->candidate);
    out.legs.push_back(std::move(leg));
  }
  out.Conclude(BitsOf(facts, real));
  if (out.legs.empty()) out.deciding_leg = -1;
  return out;
}

}  // namespace

JudgeOutcome JudgeBits(const RunContext& context, Measurements* measured) {
  PackedFacts& facts = measured->facts;
  JudgeOutcome out;
  out.tensors.resize(facts.size());
  // Nothing in it fails.
  (void)ForEach(context.threads, facts.size(), [&](size_t i) {
    out.tensors[i] = Judge(context, facts[i]);
    facts.Forget(i);
    return Status(Done{});
  }).ok();
  facts = {};
  AddWhatOnlyTheReferenceHas(context, &out.tensors);
  return out;
}

}  // namespace ttrace
