#include "src/judge/judge_tensor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "src/experiment/models_beside.h"
#include "src/experiment/parameter_roles.h"
#include "src/judge/constants.h"
#include "src/judge/maxima.h"
#include "src/judge/mismatches.h"
#include "src/judge/projection.h"
#include "src/judge/rule.h"
#include "src/judge/small_sample.h"
#include "src/measure/exact_values.h"

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Ranks that hold an instance which is out of bounds by itself.
std::vector<int> FaultyRanks(const LegJudgement& leg,
                             const std::vector<InstanceStats>& instances) {
  std::set<int> ranks;
  const bool pieces = std::any_of(
      leg.tests.begin(), leg.tests.end(),
      [](const Test& test) { return test.statistic == Statistic::kPiece; });
  for (const Test& test : leg.tests) {
    if (test.statistic == Statistic::kPiece && test.headroom > 1) {
      ranks.insert(test.ranks.begin(), test.ranks.end());
    }
  }
  for (const InstanceStats& instance : instances) {
    if ((!pieces && instance.stats.rel_err() > leg.bound) ||
        ExceedsMaxima(leg, instance.stats) ||
        (instance.stats.nonfinite_differ > 0 && !leg.overflow)) {
      ranks.insert(instance.ranks.begin(), instance.ranks.end());
    }
  }
  return {ranks.begin(), ranks.end()};
}

std::vector<int> NonfiniteRanks(const TensorComparison& compared) {
  std::set<int> ranks;
  for (const InstanceStats& instance : compared.instances) {
    if (instance.stats.nonfinite_cand == 0) continue;
    ranks.insert(instance.ranks.begin(), instance.ranks.end());
  }
  return {ranks.begin(), ranks.end()};
}

std::optional<ErrorStats> Total(const std::optional<PairFacts>& pair) {
  if (!pair) return std::nullopt;
  return pair->total;
}

// Nothing else is said of it than what its reason says.
void Settle(TensorVerdict verdict, Reason reason, TensorJudgement* out) {
  out->verdict = verdict;
  out->reason = std::move(reason);
  out->deciding_leg = -1;
  out->headroom = 0;
}

void Explain(ReasonKind kind, TensorJudgement* out) {
  Settle(TensorVerdict::kNotCheckable, Because(kind), out);
  out->explained = true;
}

// By something else than a bound.
void Flag(std::vector<int> ranks, Reason reason, TensorJudgement* out) {
  out->verdict = TensorVerdict::kDiverged;
  out->explained = false;
  out->headroom = kInfinity;
  out->ranks = std::move(ranks);
  out->reason = std::move(reason);
}

// Rows that are not as many as the router sent. They are counted by the run's
// own maps: no reference is needed.
bool FlagMiscounted(const TensorFacts& facts, TensorJudgement* out) {
  if (!facts.unplaced || !facts.unplaced->miscounted) return false;
  Flag({facts.unplaced->rank},
       Because(ReasonKind::kRoutedRows, ToString(*facts.unplaced)), out);
  return true;
}

// Without a reference: copies, and values that must be finite.
// `overflow`: those that are not may be overflows of fp16.
void ConcludeAlone(const TensorFacts& facts, bool overflow,
                   TensorJudgement* out) {
  if (FlagMiscounted(facts, out)) return;
  out->verdict = TensorVerdict::kWithin;
  if (!facts.trouble.empty()) {
    out->verdict = TensorVerdict::kNotCheckable;
    out->reason = Because(ReasonKind::kNotComparable);
    out->reason.detail = facts.trouble;
    return;
  }
  if (!facts.own || facts.own->total.nonfinite_cand == 0) return;
  LegJudgement leg;
  leg.leg = "real";
  leg.stats = facts.own->total;
  leg.overflow = overflow;
  if (overflow) {
    out->verdict = TensorVerdict::kNotCheckable;
    out->reason = WhyNotCheckable(leg);
    return;
  }
  leg.headroom = kInfinity;
  leg.ranks = NonfiniteRanks(*facts.own);
  out->ranks = leg.ranks;
  out->legs.push_back(std::move(leg));
  out->deciding_leg = 0;
  out->nonfinite = true;
  out->headroom = kInfinity;
  out->verdict = TensorVerdict::kDiverged;
}

// Whether each run holds what the other does. What is padded further in one of
// them is there only once.
bool IsWhole(const TensorFacts& facts, const TensorComparison& compared) {
  if (facts.padded) {
    return compared.candidate_overlap == 0 && compared.reference_overlap == 0;
  }
  return compared.complete() && compared.common_gap == 0;
}

void JudgeUpdate(const TensorFacts& facts, TensorJudgement* out) {
  if (!facts.update || facts.update->ranks.empty()) return;
  Reason reason = Because(ReasonKind::kNotUpdated);
  reason.counts = {facts.update->unchanged, facts.update->changed};
  reason.far = facts.update->far;
  Flag(facts.update->ranks, std::move(reason), out);
}

// Other data or weights are no finding where they are grafted: samplers
// shuffle, and topologies draw other random numbers. Ranks that have one
// another's are.
void JudgeOwnParts(const TensorFacts& facts, TensorJudgement* out) {
  if (out->verdict == TensorVerdict::kBitwiseEqual || !facts.foreign_parts ||
      facts.foreign_parts->ranks.empty()) {
    return;
  }
  if (!out->legs.empty()) out->deciding_leg = 0;
  Reason reason = Because(ReasonKind::kForeignPart);
  reason.ranks = facts.foreign_parts->ranks;
  reason.owners = facts.foreign_parts->owners;
  reason.tensor = facts.id;
  Flag(facts.foreign_parts->ranks, std::move(reason), out);
}

int FirstOf(const std::set<int>& iterations) {
  return iterations.empty() ? 0 : *iterations.begin();
}

}  // namespace

TensorJudge::TensorJudge(const Side* reference, const Side& candidate,
                         const std::vector<LegPlan>& plans,
                         const Expectations& expectations,
                         const UnlikeDraws& draws, const SkippedSteps& skipped,
                         std::set<int> unequal_starts)
    : has_reference_(reference != nullptr),
      first_iteration_(FirstOf(candidate.Iterations())),
      weights_grafted_(candidate.weights_grafted()),
      data_grafted_(candidate.data_grafted()),
      plans_(plans),
      expectations_(expectations),
      draws_(draws),
      skipped_(skipped),
      unequal_starts_(std::move(unequal_starts)),
      not_isolated_(candidate.not_isolated()),
      presumed_alike_(candidate.presumed_alike()),
      models_beside_(reference != nullptr &&
                     ModelsBeside(*reference, candidate) > 0) {
  if (reference != nullptr) rounding_.emplace(*reference, candidate);
}

void TensorJudge::FindTies(const PackedFacts& tensors) {
  ties_ = RoutingTies(tensors,
                      [&](const TensorFacts& scores,
                          const LegFacts& leg) -> std::optional<Test> {
                        const LegJudgement judged = JudgeLegOf(scores, leg);
                        const Test* element = judged.Find(Statistic::kElement);
                        if (!judged.checkable || element == nullptr)
                          return std::nullopt;
                        return *element;
                      });
}

TensorJudgement TensorJudge::Judge(const TensorFacts& facts) const {
  TensorJudgement out;
  out.id = facts.id;
  out.order = facts.order;
  out.replicas = facts.replicas;
  out.padding_gradient = facts.padding_gradient;
  if (facts.candidate_repeat) {
    out.repeat = {facts.candidate_repeat->bitwise(),
                  facts.candidate_repeat->err()};
    out.not_repeatable =
        !facts.candidate_repeat->bitwise() &&
        (!facts.reference_repeat ||
         facts.candidate_repeat->err() >
             SampleFactor(1, kRunRisk) * facts.reference_repeat->err());
  }
  if (!facts.damage.empty()) {
    Settle(TensorVerdict::kNotCheckable, Because(ReasonKind::kDamaged), &out);
    out.reason.detail = facts.damage;
    return out;
  }
  if (facts.listed) {
    Explain(ReasonKind::kRowOfList, &out);
    return out;
  }
  if (skipped_.Clear(facts.id)) {
    Explain(ReasonKind::kCleared, &out);
    return out;
  }
  // No copies, then, and what they are parts of is not known.
  if (facts.replicas.differing > 0 &&
      presumed_alike_.contains({facts.id.fqn, facts.id.role})) {
    Explain(ReasonKind::kNotAlike, &out);
    return out;
  }
  if (facts.batch_unknown) {
    Explain(ReasonKind::kBatchUnknown, &out);
    return out;
  }
  std::vector<bool> is_isolated;
  for (const LegFacts& leg : facts.legs) {
    if (!leg.usable) continue;
    out.legs.push_back(JudgeLegOf(facts, leg));
    out.legs.back().routed = leg.candidate.routed;
    is_isolated.push_back(plans_[leg.plan].isolated);
    // An expert to which no token was sent shows as little as one of zeros.
    if ((leg.candidate.total.count > 0 || leg.candidate.routed) &&
        !facts.exact && leg.candidate.total.sum_sq_ref == 0) {
      out.all_zero = true;
    }
  }
  if (!has_reference_) {
    ConcludeAlone(facts, skipped_.MayOverflow(facts.id), &out);
  } else {
    ConcludeEndToEnd(facts, &out);
    bool copies_differ_alone = false;
    for (const LegFacts& leg : facts.legs) {
      copies_differ_alone |=
          leg.replicas && CopiesDiffer(facts, *leg.replicas, out.legs);
    }
    if (!draws_.ReachIsolated(facts.id)) {
      out.isolated = ConcludeIsolated(
          facts.id, out.legs, is_isolated, not_isolated_, facts.exact,
          copies_differ_alone, facts.replicas.differing_ranks);
      const bool is_of_others = models_beside_ && IsMadeByTheLoop(facts.id);
      if (out.isolated && (is_of_others || ContradictedByRun(out))) {
        out.isolated->verdict = TensorVerdict::kNotCheckable;
        out.isolated->reason = Because(is_of_others ? ReasonKind::kOfOtherModels
                                                    : ReasonKind::kNotOfTheRun);
        out.isolated->ranks.clear();
      }
    }
    if (ReplacedByGraft(facts) || facts.id.role == Role::kData) {
      JudgeOwnParts(facts, &out);
    }
    if (!skipped_.LeaveOutStep(facts.id.iteration)) JudgeUpdate(facts, &out);
  }
  out.carried = IsCarried(facts);
  if (out.carried) {
    // Ranks that make it of their own rows have copies that differ.
    if (out.diverged()) {
      out.verdict = TensorVerdict::kNotCheckable;
      out.reason = Because(ReasonKind::kOwnStatistic);
      out.explained = true;
    }
    return out;
  }
  out.replicas_differ = CopiesDiffer(facts, facts.replicas, out.legs);
  if (out.replicas_differ) {
    // Whatever else is not comparable: copies need no reference.
    out.verdict = TensorVerdict::kDiverged;
    out.explained = false;
    if (!(out.headroom > 1)) out.headroom = kInfinity;
    if (out.ranks.empty()) out.ranks = out.replicas.differing_ranks;
  }
  return out;
}

LegJudgement TensorJudge::JudgeLegOf(const TensorFacts& facts,
                                     const LegFacts& leg) const {
  const LegPlan& plan = plans_[leg.plan];
  const TensorId& id = facts.id;
  if (facts.exact || HasNoTolerance(id.role)) {
    const bool computed =
        facts.exact && !HasNoTolerance(id.role) && !id.fqn.empty();
    if (const Test* element = ties_.Find(id, leg.plan)) {
      return JudgeFlips(plan.name, leg, *element);
    }
    return JudgeEquality(plan.name, leg, computed, expectations_.risk());
  }
  const bool fp32 = plan.unit_roundoff <= kFp32Roundoff;
  LegErrors errors;
  errors.leg = plan.name;
  errors.stats = leg.candidate.total;
  errors.noise = Totals(leg.noise);
  errors.repeat = Total(leg.repeat);
  errors.candidate_hp = Total(leg.candidate_hp);
  errors.reference_hp = Total(leg.reference_hp);
  errors.vector_gradient = IsParameterGradient(id.role) && facts.vector;
  errors.lookup_gradient = facts.lookup;
  errors.rounding = rounding_->Of(id, plan.isolated, fp32);
  errors.risk = expectations_.risk();
  errors.terms_sq = expectations_.TermsOf(facts);
  const bool whole = leg.candidate.fidelity == Fidelity::kValues;
  const bool estimated = errors.estimated();
  LegJudgement out = estimated ? JudgeEstimates(errors) : JudgeLeg(errors);
  out.fidelity = leg.candidate.fidelity;
  out.reordered = leg.candidate.reordered;
  out.stats = errors.stats;
  // A summary knows of no element, and of no part. Of what is zero but for
  // rounding no element, part or factor has a size of its own.
  if (!errors.noise.empty() && whole && !estimated && !out.zero_sum) {
    // Element errors are measured unless the reference has no scale of its own.
    if (errors.noise.front().sum_sq_elem > 0 || errors.stats.max_elem > 0) {
      LegErrors maxima = errors;
      if (maxima.repeat) maxima.noise.push_back(*maxima.repeat);
      JudgeMaxima(maxima, &out);
    }
    JudgeProjection(errors, expectations_.PooledProjection(id, leg.plan), &out);
    AddPieces(leg, errors, &out);
  }
  // A replay of the candidate that differs by more than its bound: not the
  // noise of a run that is right.
  if (plan.name == "real" && facts.candidate_repeat && out.checkable && whole &&
      !facts.candidate_repeat->bitwise() && !out.tests.empty()) {
    Test repeat;
    repeat.statistic = Statistic::kRepeat;
    // The least that it can be, of an estimate.
    repeat.value = facts.candidate_repeat->total.AtLow().rel_err();
    repeat.bound = out.bound;
    repeat.headroom = repeat.value / repeat.bound;
    repeat.expected = out.tests.front().expected;
    out.Add(std::move(repeat));
  }
  for (Test& test : out.tests) {
    test.expected.one_module_deep = plan.isolated && !plan.borrowed_noise;
    test.expected.end_to_end_for_want = plan.isolated && plan.borrowed_noise;
  }
  out.overflow =
      !fp32 && out.stats.nonfinite_differ > 0 && skipped_.MayOverflow(id);
  if (out.overflow && !(out.headroom > 1)) out.checkable = false;
  if (rounding_->IsReducedUnknown(id)) {
    out.reduction_unknown = true;
    out.checkable = false;
    out.tests.clear();
    out.deciding_test = -1;
    out.headroom = 0;
    return out;
  }
  out.ranks = FaultyRanks(out, leg.candidate.instances);
  return out;
}

void TensorJudge::AddPieces(const LegFacts& leg, const LegErrors& whole,
                            LegJudgement* out) const {
  // One region is the whole tensor, on however many ranks.
  if (leg.candidate.regions.size() < 2 || !out->checkable) return;
  for (const InstanceStats& instance : leg.candidate.instances) {
    const auto region = static_cast<size_t>(instance.region);
    LegErrors part = whole;
    part.terms_sq = 0;  // of the part they are not known
    part.stats = instance.stats;
    const auto of = [region](const PairFacts& pair) {
      return region < pair.regions.size() ? pair.regions[region] : ErrorStats{};
    };
    for (size_t i = 0; i < leg.noise.size(); ++i) {
      part.noise[i] = of(leg.noise[i]);
    }
    if (leg.repeat) part.repeat = of(*leg.repeat);
    if (leg.candidate_hp) part.candidate_hp = of(*leg.candidate_hp);
    if (leg.reference_hp) part.reference_hp = of(*leg.reference_hp);
    std::optional<Test> test = JudgePart(part);
    if (!test) continue;
    test->ranks = instance.ranks;
    test->micro_batch = instance.micro_batch;
    out->Add(*std::move(test));
  }
}

// Copies are made by the same operations on the same values, so they are equal
// bit for bit, unless the run does not even repeat itself. Then they may differ
// by what the reference's noise allows, never by what the candidate shows.
bool TensorJudge::CopiesDiffer(const TensorFacts& facts,
                               const ReplicaComparison& copies,
                               const std::vector<LegJudgement>& legs) const {
  if (copies.differing == 0) return false;
  if (expectations_.RepeatsUntil(facts.order)) return true;
  const auto real = std::find_if(legs.begin(), legs.end(), [](const auto& leg) {
    return leg.leg == "real" && leg.checkable && !leg.tests.empty();
  });
  if (real != legs.end()) return copies.worst_rel_err > real->bound;
  // Without a bound, one sample of the run's own differences, for the worst of
  // so many copies.
  const double risk =
      kRunRisk / static_cast<double>(std::max<int64_t>(1, copies.copies));
  return copies.worst_rel_err >
         SampleFactor(1, risk) *
             (facts.candidate_repeat ? facts.candidate_repeat->err() : 0);
}

// From the legs to the verdict of the run as it was.
void TensorJudge::ConcludeEndToEnd(const TensorFacts& facts,
                                   TensorJudgement* out) const {
  if (!facts.in_reference) {
    Settle(TensorVerdict::kUnmatched,
           Because(ReasonKind::kNotInReference, WhyAbsent(facts.id.role)), out);
    return;
  }
  const bool drawn = draws_.Reach(facts) && !HasNoTolerance(facts.id.role);
  if (facts.reference_shape != facts.candidate_shape) {
    if (drawn) return Explain(ReasonKind::kUnlikeDraws, out);
    Reason reason = Because(ReasonKind::kShapeDiffers);
    reason.shape = facts.candidate_shape;
    reason.other_shape = facts.reference_shape;
    Flag({}, std::move(reason), out);
    return;
  }
  if (FlagMiscounted(facts, out)) return;
  if (facts.unplaced || facts.reference_unplaced) {
    Settle(TensorVerdict::kNotCheckable,
           Because(ReasonKind::kNoRouting,
                   facts.unplaced ? ToString(*facts.unplaced)
                                  : "in the reference, " +
                                        ToString(*facts.reference_unplaced)),
           out);
    return;
  }
  if (facts.id.role == Role::kGradNorm) {
    // Judged from the gradients it is the norm of.
    out->verdict = TensorVerdict::kWithin;
    return;
  }
  // What keeps the comparison from being whole.
  for (const LegFacts& leg : facts.legs) {
    if (plans_[leg.plan].isolated) continue;
    if (!leg.trouble.empty()) {
      out->reason = Because(ReasonKind::kNotComparable);
      out->reason.detail = leg.trouble;
    } else if (!IsWhole(facts, leg.candidate)) {
      out->reason = Because(ReasonKind::kElementsMissing);
      out->reason.counts = {
          leg.candidate.candidate_gap, leg.candidate.reference_gap,
          leg.candidate.common_gap,
          leg.candidate.candidate_overlap + leg.candidate.reference_overlap};
    }
  }
  const bool gaps = !out->reason.none();
  if (gaps && !facts.complete) {
    out->reason = Because(ReasonKind::kIterationCut);
  }
  bool equal = true;
  bool any = false;
  bool routed_upstream = false;
  const LegJudgement* overflow = nullptr;
  const LegJudgement* uncertain = nullptr;
  const LegJudgement* first = nullptr;
  size_t judged = 0;
  for (const LegFacts& facts_of_leg : facts.legs) {
    if (!facts_of_leg.usable) continue;
    const size_t i = judged++;
    if (plans_[facts_of_leg.plan].isolated) continue;
    const LegJudgement& leg = out->legs[i];
    if (first == nullptr) first = &leg;
    any = true;
    equal = equal && leg.stats.bitwise_equal();
    if (leg.nonfinite_by_fault()) out->nonfinite = true;
    if (leg.overflow) overflow = &leg;
    if (leg.uncertain) uncertain = &leg;
    if (leg.headroom > 1 && ties_.Reach(facts, facts_of_leg.plan)) {
      routed_upstream = true;
      continue;
    }
    if (leg.checkable &&
        (out->deciding_leg < 0 || leg.headroom > out->headroom)) {
      out->deciding_leg = static_cast<int>(i);
      out->headroom = leg.headroom;
    }
  }
  if (!any) {
    if (out->reason.none()) out->reason = Because(ReasonKind::kNoCommonLeg);
    out->verdict = TensorVerdict::kUnmatched;
    return;
  }
  if (equal && !gaps) {
    out->verdict = TensorVerdict::kBitwiseEqual;
    return;
  }
  if (out->nonfinite) {
    out->verdict = TensorVerdict::kDiverged;
    out->headroom = kInfinity;
    if (out->deciding_leg < 0) out->deciding_leg = 0;
    out->ranks = out->deciding()->ranks;
    return;
  }
  if (ReplacedByGraft(facts)) {
    Explain(ReasonKind::kReplacedByGraft, out);
    return;
  }
  if (IsAfterStep(facts.id.role)) {
    Explain(ReasonKind::kAfterStep, out);
    return;
  }
  if (drawn && out->headroom > 1) {
    Explain(ReasonKind::kUnlikeDraws, out);
    return;
  }
  if (routed_upstream && out->deciding_leg < 0) {
    Settle(gaps ? TensorVerdict::kUnmatched : TensorVerdict::kNotCheckable,
           gaps ? out->reason : Because(ReasonKind::kRoutedUpstream), out);
    return;
  }
  if (uncertain != nullptr && !(out->headroom > 1)) {
    Settle(TensorVerdict::kNotCheckable, WhyNotCheckable(*uncertain), out);
    return;
  }
  if (facts.exact || HasNoTolerance(facts.id.role)) {
    if (out->headroom > 1) {
      out->verdict = TensorVerdict::kDiverged;
      out->ranks = out->deciding()->ranks;
      if (const auto& flips = out->deciding()->flips) {
        out->reason = Because(ReasonKind::kWrongRouting);
        out->reason.counts = {flips->flipped - flips->tied, flips->flipped,
                              flips->tokens};
        return;
      }
      out->reason = Because(ReasonKind::kElementsDiffer);
      out->reason.counts = {out->deciding()->stats.mismatched,
                            out->deciding()->stats.count};
      out->reason.dtype = facts.dtype;
    } else {
      out->verdict = gaps ? TensorVerdict::kUnmatched : TensorVerdict::kWithin;
    }
    return;
  }
  if (overflow != nullptr && !(out->headroom > 1)) {
    // Also where an fp32 leg is within: what made the elements infinite is not
    // in it.
    Settle(TensorVerdict::kNotCheckable, WhyNotCheckable(*overflow), out);
    return;
  }
  if (unequal_starts_.contains(facts.id.iteration)) {
    Explain(ReasonKind::kUnequalStart, out);
    return;
  }
  if (out->deciding_leg < 0) {
    out->verdict = TensorVerdict::kNotCheckable;
    out->reason = WhyNotCheckable(*first);
    return;
  }
  if (out->headroom > 1) {
    out->verdict = TensorVerdict::kDiverged;
    out->ranks = out->deciding()->ranks;
  } else if (gaps) {
    out->verdict = TensorVerdict::kUnmatched;
  } else if (out->headroom > kSuspectHeadroom) {
    out->verdict = TensorVerdict::kSuspect;
  } else {
    out->verdict = TensorVerdict::kWithin;
  }
}

// Of the first iteration it is what the run began with.
bool TensorJudge::IsCarried(const TensorFacts& facts) const {
  return facts.id.role == Role::kBuffer && !facts.exact &&
         facts.id.iteration > first_iteration_;
}

bool TensorJudge::ReplacedByGraft(const TensorFacts& facts) const {
  return (facts.id.role == Role::kParam && weights_grafted_) ||
         (facts.id.role == Role::kData && data_grafted_ && !facts.own_rows);
}

}  // namespace ttrace
