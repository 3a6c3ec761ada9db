#include "src/judge/judge_tensor.h"

#include <algorithm>
#include <utility>

#include "src/experiment/models_beside.h"
#include "src/experiment/parameter_roles.h"
#include "src/judge/constants.h"
#include "src/judge/maxima.h"
#include "src/judge/mismatches.h"
#include "src/judge/projection.h"
#include "src/judge/rule.h"
#include "src/judge/small_sample.h"
#include "src/judge/verdict_rules.h"
#include "src/measure/exact_values.h"

namespace ttrace {
namespace {

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

std::optional<ErrorStats> Total(const std::optional<PairFacts>& pair) {
  if (!pair) return std::nullopt;
  return pair->total;
}

// Of a tensor that no leg compares.
LegJudgement NotFiniteLeg(const TensorFacts& facts, const Outcome& said) {
  LegJudgement leg;
  leg.leg = kReal;
  leg.stats = facts.own->total;
  leg.headroom = said.headroom;
  leg.ranks = said.ranks;
  return leg;
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
      weights_grafted_(candidate.facts().weights_grafted),
      data_grafted_(candidate.facts().data_grafted),
      plans_(plans),
      expectations_(expectations),
      draws_(draws),
      skipped_(skipped),
      unequal_starts_(std::move(unequal_starts)),
      not_isolated_(candidate.not_isolated()),
      presumed_alike_(candidate.facts().presumed_alike),
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
  Case of = CaseOf(facts, out.legs);
  if (auto outcome = WhyNotJudged(of)) {
    out.Conclude(*std::move(outcome));
    return out;
  }
  if (!has_reference_) {
    of.copies_differ = CopiesDiffer(facts, facts.replicas, out.legs);
    out.Conclude(ConcludeWithoutReference(of));
    if (out.nonfinite) out.legs.push_back(NotFiniteLeg(facts, out));
  } else {
    JudgeLegs(facts, &out);
    of.seen = SeeEndToEnd(facts, out.legs, plans_, ties_);
    of.copies_differ = CopiesDiffer(facts, facts.replicas, out.legs);
    out.Conclude(ConcludeAgainst(of));
    ConcludeIsolatedLegs(facts, &out);
  }
  out.carried = of.carried;
  out.replicas_differ = of.copies_differ && !of.carried;
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
  errors.candidate_fp32 = Total(leg.candidate_fp32);
  errors.reference_fp32 = Total(leg.reference_fp32);
  errors.vector_gradient = IsParameterGradient(id.role) && facts.vector;
  errors.lookup_gradient = facts.lookup;
  errors.rounding = rounding_->Of(id, plan.isolated, fp32);
  errors.risk = expectations_.risk();
  errors.terms_sq = expectations_.TermsOf(facts);
  errors.parts = expectations_.PartsBeside(id, errors.rounding);
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
  if (plan.name == kReal && facts.candidate_repeat && out.checkable && whole &&
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
    if (leg.candidate_fp32) part.candidate_fp32 = of(*leg.candidate_fp32);
    if (leg.reference_fp32) part.reference_fp32 = of(*leg.reference_fp32);
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
  if (expectations_.RepeatsBefore(facts.order)) return true;
  const auto real = std::find_if(legs.begin(), legs.end(), [](const auto& leg) {
    return leg.leg == kReal && leg.checkable && !leg.tests.empty();
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

void TensorJudge::JudgeLegs(const TensorFacts& facts,
                            TensorJudgement* out) const {
  for (const LegFacts& leg : facts.legs) {
    if (!leg.usable) continue;
    out->legs.push_back(JudgeLegOf(facts, leg));
    out->legs.back().routed = leg.candidate.routed;
    // An expert to which no token was sent shows as little as one of zeros.
    if ((leg.candidate.total.count > 0 || leg.candidate.routed) &&
        !facts.exact && leg.candidate.total.sum_sq_ref == 0) {
      out->all_zero = true;
    }
  }
}

Case TensorJudge::CaseOf(const TensorFacts& facts,
                         const std::vector<LegJudgement>& legs) const {
  const TensorId& id = facts.id;
  Case of{facts, legs, {}};
  of.cleared = skipped_.Clear(id);
  of.of_cleared_pass = skipped_.OfClearedPass(id);
  of.presumed_alike = presumed_alike_.contains({id.fqn, id.role});
  of.replaced_by_graft =
      (id.role == Role::kParam && weights_grafted_) ||
      (id.role == Role::kData && data_grafted_ && !facts.own_rows);
  of.after_draws = draws_.Affects(facts) && !HasNoTolerance(id.role);
  of.unequal_start = unequal_starts_.contains(id.iteration);
  of.may_overflow = skipped_.MayOverflow(id);
  of.step_skipped = skipped_.LeaveOutStep(id.iteration);
  // Of the first iteration it is what the run began with.
  of.carried = id.role == Role::kBuffer && !facts.exact &&
               (id.iteration > first_iteration_ || of.unequal_start);
  return of;
}

void TensorJudge::ConcludeIsolatedLegs(const TensorFacts& facts,
                                       TensorJudgement* out) const {
  if (draws_.AffectsIsolated(facts.id)) return;
  std::vector<bool> is_isolated;
  bool copies_differ = false;
  for (const LegFacts& leg : facts.legs) {
    if (leg.usable) is_isolated.push_back(plans_[leg.plan].isolated);
    copies_differ |=
        leg.replicas && CopiesDiffer(facts, *leg.replicas, out->legs);
  }
  out->isolated = ConcludeIsolated(facts.id, out->legs, is_isolated,
                                   not_isolated_, facts.exact, copies_differ,
                                   facts.replicas.differing_ranks);
  if (!out->isolated) return;
  ReasonKind why;
  if (models_beside_ && IsMadeByTheLoop(facts.id)) {
    why = ReasonKind::kOfOtherModels;
  } else if (ContradictedByRun(*out)) {
    why = ReasonKind::kNotOfTheRun;
  } else if (out->isolated->verdict == TensorVerdict::kDiverged &&
             skipped_.OfClearedPass(facts.id)) {
    why = ReasonKind::kClearedPass;
  } else {
    return;
  }
  out->isolated->verdict = TensorVerdict::kNotCheckable;
  out->isolated->reason = Because(why);
  out->isolated->ranks.clear();
}

}  // namespace ttrace
