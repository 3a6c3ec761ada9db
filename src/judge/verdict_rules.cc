#include "src/judge/verdict_rules.h"

#include <limits>
#include <set>
#include <span>
#include <utility>

#include "src/experiment/parameter_roles.h"
#include "src/measure/exact_values.h"

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Said = std::optional<Outcome>;
using Rule = Said (*)(const Case&);

Said FirstOf(std::span<const Rule> rules, const Case& of) {
  for (const Rule rule : rules) {
    if (Said said = rule(of)) return said;
  }
  return std::nullopt;
}

const LegJudgement* Deciding(const Case& of) {
  return of.seen.deciding_leg < 0
             ? nullptr
             : &of.legs[static_cast<size_t>(of.seen.deciding_leg)];
}

// What the deciding leg shows.
Outcome Decided(TensorVerdict verdict, Reason reason, const Case& of) {
  Outcome out = Settled(verdict, std::move(reason));
  out.deciding_leg = of.seen.deciding_leg;
  out.headroom = of.seen.headroom;
  if (out.diverged() && Deciding(of) != nullptr)
    out.ranks = Deciding(of)->ranks;
  return out;
}

bool HasGap(const Case& of) { return !of.seen.gap.none(); }

// Without any leg.

Said Damaged(const Case& of) {
  if (of.facts.damage.empty()) return std::nullopt;
  return NotCheckable(Because(ReasonKind::kDamaged, of.facts.damage));
}

Said RowOfList(const Case& of) {
  if (!of.facts.listed) return std::nullopt;
  return Excused(ReasonKind::kRowOfList);
}

Said Cleared(const Case& of) {
  if (!of.cleared) return std::nullopt;
  return Excused(ReasonKind::kCleared);
}

// No copies, then, and what they are parts of is not known.
Said NotAlike(const Case& of) {
  if (!of.presumed_alike || of.facts.replicas.differing == 0) {
    return std::nullopt;
  }
  return Excused(ReasonKind::kNotAlike);
}

Said BatchUnknown(const Case& of) {
  if (!of.facts.batch_unknown) return std::nullopt;
  return Excused(ReasonKind::kBatchUnknown);
}

// With a reference or without.

// Rows that are not as many as the router sent. They are counted by the run's
// own maps: no reference is needed.
Said Miscounted(const Case& of) {
  if (!of.facts.unplaced || !of.facts.unplaced->miscounted) return std::nullopt;
  return Flagged(
      {of.facts.unplaced->rank},
      Because(ReasonKind::kRoutedRows, ToString(*of.facts.unplaced)));
}

// Without a reference.

Said NotComparable(const Case& of) {
  if (of.facts.trouble.empty()) return std::nullopt;
  return NotCheckable(Because(ReasonKind::kNotComparable, of.facts.trouble));
}

Said NotFinite(const Case& of) {
  if (!of.facts.own || of.facts.own->total.nonfinite_cand == 0) {
    return std::nullopt;
  }
  if (of.may_overflow) {
    LegJudgement overflow;
    overflow.stats = of.facts.own->total;
    overflow.overflow = true;
    return NotCheckable(WhyNotCheckable(overflow));
  }
  std::set<int> ranks;
  for (const InstanceStats& instance : of.facts.own->instances) {
    if (instance.stats.nonfinite_cand == 0) continue;
    ranks.insert(instance.ranks.begin(), instance.ranks.end());
  }
  Outcome out = Flagged({ranks.begin(), ranks.end()}, {});
  out.nonfinite = true;
  out.deciding_leg = 0;
  return out;
}

Said NothingWrong(const Case&) { return Settled(TensorVerdict::kWithin, {}); }

// Against a reference: what needs no bound.

Said NotUpdated(const Case& of) {
  const auto& update = of.facts.update;
  if (of.step_skipped || !update || update->ranks.empty()) return std::nullopt;
  Reason reason = Because(ReasonKind::kNotUpdated);
  reason.counts = {update->unchanged, update->changed};
  reason.far = update->far;
  // No leg decides: that values differ from the reference's says nothing.
  return Flagged(update->ranks, std::move(reason));
}

// Other data or weights are no finding where they are grafted: samplers
// shuffle, and topologies draw other random numbers. Ranks that have one
// another's are.
Said ForeignPart(const Case& of) {
  const auto& parts = of.facts.foreign_parts;
  if (!parts || parts->ranks.empty()) return std::nullopt;
  if (of.facts.id.role != Role::kData && !of.replaced_by_graft) {
    return std::nullopt;
  }
  if (of.seen.first != nullptr && of.seen.equal && !HasGap(of)) {
    return std::nullopt;
  }
  Reason reason = Because(ReasonKind::kForeignPart);
  reason.ranks = parts->ranks;
  reason.owners = parts->owners;
  reason.tensor = of.facts.id;
  Outcome out = Flagged(parts->ranks, std::move(reason));
  if (!of.legs.empty()) out.deciding_leg = 0;
  return out;
}

Said NotInReference(const Case& of) {
  if (of.facts.in_reference) return std::nullopt;
  return Settled(
      TensorVerdict::kUnmatched,
      Because(ReasonKind::kNotInReference, WhyAbsent(of.facts.id.role)));
}

Said AnotherShape(const Case& of) {
  if (of.facts.reference_shape == of.facts.candidate_shape) return std::nullopt;
  if (of.after_draws) return Excused(ReasonKind::kUnlikeDraws);
  return Flagged(
      {}, ShapesDiffer(of.facts.candidate_shape, of.facts.reference_shape));
}

// Which tokens its rows are is not known.
Said NotRouted(const Case& of) {
  const auto& ours = of.facts.unplaced;
  const auto& theirs = of.facts.reference_unplaced;
  if (!ours && !theirs) return std::nullopt;
  return NotCheckable(Because(
      ReasonKind::kNoRouting,
      ours ? ToString(*ours) : "in the reference, " + ToString(*theirs)));
}

// Judged from the gradients that it is the norm of (judge_norm.h).
Said NormOfGradients(const Case& of) {
  if (of.facts.id.role != Role::kGradNorm) return std::nullopt;
  return Settled(TensorVerdict::kWithin, {});
}

Said NoCommonLeg(const Case& of) {
  if (of.seen.first != nullptr) return std::nullopt;
  return Settled(TensorVerdict::kUnmatched,
                 HasGap(of) ? of.seen.gap : Because(ReasonKind::kNoCommonLeg));
}

Said Equal(const Case& of) {
  if (!of.seen.equal || HasGap(of)) return std::nullopt;
  return Decided(TensorVerdict::kBitwiseEqual, {}, of);
}

// Against a reference: what is other without being wrong.

Said ReplacedByGraft(const Case& of) {
  if (!of.replaced_by_graft) return std::nullopt;
  return Excused(ReasonKind::kReplacedByGraft);
}

// Judged by what the step makes of what it is given (judge_step.h).
Said AfterStep(const Case& of) {
  if (!IsAfterStep(of.facts.id.role) || of.seen.nonfinite) return std::nullopt;
  return Excused(ReasonKind::kAfterStep);
}

Said AfterUnlikeDraws(const Case& of) {
  if (!of.after_draws || !of.seen.out()) return std::nullopt;
  return Excused(ReasonKind::kUnlikeDraws);
}

Said RoutedUpstream(const Case& of) {
  if (!of.seen.routed_upstream || of.seen.deciding_leg >= 0) {
    return std::nullopt;
  }
  return HasGap(of) ? Settled(TensorVerdict::kUnmatched, of.seen.gap)
                    : NotCheckable(Because(ReasonKind::kRoutedUpstream));
}

// Against a reference: what the values show.

Said NotFiniteInOneRun(const Case& of) {
  if (!of.seen.nonfinite) return std::nullopt;
  Outcome out = Decided(TensorVerdict::kDiverged, of.seen.gap, of);
  out.nonfinite = true;
  return out;
}

Said Uncertain(const Case& of) {
  if (of.seen.uncertain == nullptr || of.seen.out()) return std::nullopt;
  return NotCheckable(WhyNotCheckable(*of.seen.uncertain));
}

// Which weights a run has after steps that nobody recorded, rounding decides.
Said MadeBefore(const Case& of) {
  if (of.facts.id.role != Role::kParam || !of.unequal_start || !of.seen.out()) {
    return std::nullopt;
  }
  return NotCheckable(Because(ReasonKind::kUnequalStart));
}

Said WithoutTolerance(const Case& of) {
  if (!of.facts.exact && !HasNoTolerance(of.facts.id.role)) return std::nullopt;
  if (!of.seen.out()) {
    return Decided(
        HasGap(of) ? TensorVerdict::kUnmatched : TensorVerdict::kWithin,
        of.seen.gap, of);
  }
  const LegJudgement& leg = *Deciding(of);
  Reason reason;
  if (leg.flips) {
    reason = Because(ReasonKind::kWrongRouting);
    reason.counts = {leg.flips->flipped - leg.flips->tied, leg.flips->flipped,
                     leg.flips->tokens};
  } else {
    reason = leg.fidelity == Fidelity::kValues
                 ? ElementsDiffer(leg.stats.mismatched, leg.stats.count,
                                  of.facts.dtype)
                 : OtherDigest(leg.reordered, leg.ranks);
  }
  return Decided(TensorVerdict::kDiverged, std::move(reason), of);
}

// Also where an fp32 leg is within: what made the elements infinite is not in
// it.
Said Overflow(const Case& of) {
  if (of.seen.overflow == nullptr || of.seen.out()) return std::nullopt;
  return NotCheckable(WhyNotCheckable(*of.seen.overflow));
}

Said OfClearedPass(const Case& of) {
  if (!of.of_cleared_pass || !of.seen.out()) return std::nullopt;
  return Excused(ReasonKind::kClearedPass);
}

Said UnequalStart(const Case& of) {
  if (!of.unequal_start) return std::nullopt;
  return Excused(ReasonKind::kUnequalStart);
}

Said WithoutBound(const Case& of) {
  if (of.seen.deciding_leg >= 0) return std::nullopt;
  return NotCheckable(WhyNotCheckable(*of.seen.first));
}

Said ByBound(const Case& of) {
  const bool is_open = !of.seen.out() && HasGap(of);
  return Decided(
      is_open ? TensorVerdict::kUnmatched : ByHeadroom(of.seen.headroom, false),
      of.seen.gap, of);
}

constexpr Rule kNotJudged[] = {Damaged, RowOfList, Cleared, NotAlike,
                               BatchUnknown};

constexpr Rule kWithoutReference[] = {Miscounted, NotComparable, NotFinite,
                                      NothingWrong};

constexpr Rule kAgainstReference[] = {
    // Needs no bound.
    NotUpdated, ForeignPart, NotInReference, AnotherShape, Miscounted,
    NotRouted, NormOfGradients, NoCommonLeg, Equal,
    // Other without being wrong.
    ReplacedByGraft, AfterStep, AfterUnlikeDraws, RoutedUpstream,
    // What the values show.
    NotFiniteInOneRun, Uncertain, MadeBefore, WithoutTolerance, Overflow,
    OfClearedPass, UnequalStart, WithoutBound, ByBound};

// Ranks that make a buffer of their own rows have buffers that differ, and
// copies that do.
Outcome OfCarried(Outcome before) {
  if (!before.diverged()) return before;
  before.verdict = TensorVerdict::kNotCheckable;
  before.reason = Because(ReasonKind::kOwnStatistic);
  before.excused = true;
  return before;
}

// Whatever else is not comparable: copies need no reference.
Outcome WithDifferingCopies(const Case& of, Outcome out) {
  out.verdict = TensorVerdict::kDiverged;
  out.excused = false;
  if (!(out.headroom > 1)) out.headroom = kInfinity;
  if (out.ranks.empty()) out.ranks = of.facts.replicas.differing_ranks;
  return out;
}

Outcome Conclude(std::span<const Rule> rules, const Case& of) {
  Outcome out = *FirstOf(rules, of);  // the last rule of a table always speaks
  if (of.carried) return OfCarried(std::move(out));
  return of.copies_differ ? WithDifferingCopies(of, std::move(out)) : out;
}

}  // namespace

std::optional<Outcome> WhyNotJudged(const Case& of) {
  return FirstOf(kNotJudged, of);
}

Outcome ConcludeAgainst(const Case& of) {
  return Conclude(kAgainstReference, of);
}

Outcome ConcludeWithoutReference(const Case& of) {
  return Conclude(kWithoutReference, of);
}

}  // namespace ttrace
