#include "src/judge/judge_bits.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/for_each.h"
#include "src/compare/alike_pieces.h"
#include "src/compare/compare_tensor.h"
#include "src/judge/end_to_end.h"

namespace ttrace {
namespace {

Reason Difference(const TensorFacts& facts, const TensorComparison& compared) {
  if (compared.fidelity == Fidelity::kValues) {
    return ElementsDiffer(compared.total.mismatched, compared.total.count,
                          facts.dtype);
  }
  return OtherDigest(compared.reordered, DifferingRanks(compared));
}

Reason OtherDType(const Record& candidate, const Record& reference) {
  return Because(ReasonKind::kOtherDType,
                 fmt::format("{}, the reference's is {}",
                             Info(candidate.dtype()).torch_name,
                             Info(reference.dtype()).torch_name));
}

Outcome Different(std::vector<int> ranks, Reason reason) {
  Outcome out = Flagged(std::move(ranks), std::move(reason));
  out.headroom = std::numeric_limits<double>::infinity();
  out.deciding_leg = 0;
  return out;
}

// One tensor of both runs, and what was found of what its pieces make together.
struct Both {
  const TensorFacts& facts;
  const TensorPieces& reference;
  const TensorPieces& candidate;
  const LegFacts& found;

  Reason WhyOther() const {
    if (!found.trouble.empty()) return Because(ReasonKind::kOtherDigest);
    if (found.candidate.total.bitwise_equal()) {
      return Because(ReasonKind::kOtherPieces);
    }
    return Difference(facts, found.candidate);
  }
};

// Of runs that cut a tensor alike each rank's piece is compared. Nothing: they
// are the same.
std::optional<Outcome> OfAlikePieces(const Both& both) {
  const auto ranks = RanksOfOtherBits(both.reference, both.candidate);
  if (!ranks.ok()) {
    return NotCheckable(
        Because(ReasonKind::kNotComparable, ranks.error().message()));
  }
  if (ranks->empty()) return std::nullopt;
  return Different(*ranks, both.WhyOther());
}

// Of others what their pieces make together, and that no copy hides in the
// reference: those of the candidate were compared one by one.
std::optional<Outcome> OfOtherCuts(const Both& both) {
  if (!both.found.trouble.empty()) return std::nullopt;
  const TensorComparison& merged = both.found.candidate;
  if (!merged.total.bitwise_equal()) {
    if (merged.fidelity != Fidelity::kValues &&
        (HasTermsOrFactors(both.reference) ||
         HasTermsOrFactors(both.candidate))) {
      return NotCheckable(Because(ReasonKind::kDigestsOfTerms));
    }
    return Different(DifferingRanks(merged), both.WhyOther());
  }
  const auto copies = CompareReplicas(both.reference);
  if (!copies.ok()) {
    return NotCheckable(
        Because(ReasonKind::kNotComparable, copies.error().message()));
  }
  if (copies->differing == 0) return std::nullopt;
  Reason reason = Because(ReasonKind::kReferenceCopies);
  reason.ranks = copies->differing_ranks;
  return Different({}, std::move(reason));
}

Outcome OfLeg(const Both& both) {
  const std::optional<Outcome> different =
      AreCutAlike(both.reference, both.candidate) ? OfAlikePieces(both)
                                                  : OfOtherCuts(both);
  if (different) return *different;
  if (!both.found.trouble.empty()) {
    return NotCheckable(
        Because(ReasonKind::kNotComparable, both.found.trouble));
  }
  if (!both.found.candidate.complete()) {
    return Settled(TensorVerdict::kUnmatched,
                   both.facts.complete ? MissingElements(both.found.candidate)
                                       : Because(ReasonKind::kIterationCut));
  }
  Outcome out = Settled(TensorVerdict::kBitwiseEqual, {});
  out.deciding_leg = 0;
  return out;
}

Outcome BitsOf(const RunContext& context, const TensorFacts& facts,
               const LegFacts* real) {
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
  const TensorPieces* reference = context.reference->Find(kReal, facts.id);
  const TensorPieces* candidate = context.candidate->Find(kReal, facts.id);
  if (reference != nullptr && candidate != nullptr) {
    const Record mine = candidate->pieces.front();
    const Record theirs = reference->pieces.front();
    if (mine.dtype() != theirs.dtype()) {
      return Different({}, OtherDType(mine, theirs));
    }
  }
  if (real == nullptr || reference == nullptr || candidate == nullptr) {
    return Settled(TensorVerdict::kUnmatched,
                   Because(ReasonKind::kNoCommonLeg));
  }
  return OfLeg({facts, *reference, *candidate, *real});
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
  out.Conclude(BitsOf(context, facts, real));
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
