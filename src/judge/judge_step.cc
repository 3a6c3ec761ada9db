#include "src/judge/judge_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "src/measure/exact_values.h"

namespace ttrace {
namespace {

Test TestOf(const StepErrors& errors) {
  Test test;
  test.statistic = Statistic::kStep;
  test.value = errors.error;
  test.bound = errors.bound;
  test.headroom = errors.headroom;
  test.expected.origin = Origin::kStepRounding;
  test.expected.scale = errors.bound;
  test.expected.factor = 1;
  return test;
}

// Not judged against a reference, and by nothing else either.
bool IsOpen(const TensorJudgement& t) {
  return (t.verdict == TensorVerdict::kNotCheckable &&
          t.reason.kind == ReasonKind::kAfterStep) ||
         (t.verdict == TensorVerdict::kUnmatched &&
          t.reason.kind == ReasonKind::kNotInReference);
}

LegJudgement& RealLeg(TensorJudgement* t) {
  for (LegJudgement& leg : t->legs) {
    if (leg.leg == "real") return leg;
  }
  LegJudgement leg;
  leg.leg = "real";
  t->legs.insert(t->legs.begin(), std::move(leg));
  return t->legs.front();
}

// The step alone decides: that values differ from the reference's says nothing.
void Decide(const Test& test, const StepErrors& errors, TensorJudgement* t) {
  LegJudgement leg;
  leg.leg = "real";
  leg.stats = RealLeg(t).stats;
  leg.err = test.value;
  leg.bound = test.bound;
  leg.ranks.assign(errors.ranks.begin(), errors.ranks.end());
  leg.Add(test);
  t->headroom = test.headroom;
  t->ranks = leg.ranks;
  t->legs = {std::move(leg)};
  t->deciding_leg = 0;
  t->explained = false;
  t->reason = {};
}

void JudgeQuantity(const ReplayedStep& step, const ReplayedStep* reference,
                   StepQuantity quantity, TensorJudgement* t) {
  const StepErrors& errors = step.Of(quantity);
  if (errors.judged == 0) return;
  const Test test = TestOf(errors);
  if (errors.out > 0 && reference != nullptr &&
      reference->Of(quantity).out > 0) {
    RealLeg(t).tests.push_back(test);  // decides nothing
    if (IsOpen(*t)) {
      t->verdict = TensorVerdict::kNotCheckable;
      t->explained = true;
      t->reason = Because(ReasonKind::kReferenceStep);
    }
    return;
  }
  if (errors.out > 0) {
    // Copies and values that are not finite stay what they were found to be.
    const bool before = t->diverged();
    Decide(test, errors, t);
    t->verdict = TensorVerdict::kDiverged;
    t->headroom =
        before ? std::numeric_limits<double>::infinity() : t->headroom;
    t->reason = Because(ReasonKind::kStepDiffers);
    t->reason.counts = {errors.out, errors.judged};
    t->reason.numbers = {errors.error, errors.bound};
    return;
  }
  if (IsOpen(*t) && step.whole) {
    Decide(test, errors, t);
    t->verdict = TensorVerdict::kWithin;
    return;
  }
  RealLeg(t).tests.push_back(test);
}

void SayWhyNot(const ReplayedStep& step, bool any_state, TensorJudgement* t) {
  if (t->verdict != TensorVerdict::kNotCheckable ||
      t->reason.kind != ReasonKind::kAfterStep) {
    return;
  }
  if (step.gaps.empty()) {
    if (step.whole) t->reason = Because(ReasonKind::kAfterGoodStep);
    return;
  }
  const auto& [gap, ranks] = *step.gaps.begin();
  // A run of which no state is recorded at all says so as a whole.
  if (!any_state && gap.kind == StepGap::Kind::kNotRecorded) return;
  t->reason = ReasonOf(gap, ranks);
}

}  // namespace

Reason ReasonOf(const StepGap& gap, const std::set<int>& ranks) {
  Reason reason;
  switch (gap.kind) {
    case StepGap::Kind::kNothingNoted:
      reason.kind = ReasonKind::kStepUnknown;
      reason.detail = "what it computes with";
      break;
    case StepGap::Kind::kAlgorithm:
      reason.kind = ReasonKind::kStepUnknown;
      reason.detail = gap.name.empty()
                          ? "the optimizer's algorithm"
                          : fmt::format("the algorithm {}", gap.name);
      break;
    case StepGap::Kind::kHyperparameter:
      reason.kind = ReasonKind::kStepUnknown;
      reason.detail = fmt::format("what {} does", gap.name);
      break;
    case StepGap::Kind::kNotRecorded:
      reason.kind = ReasonKind::kStepNotRecorded;
      reason.detail = gap.name;
      break;
    case StepGap::Kind::kNotHeld:
      reason.kind = ReasonKind::kStepNotHeld;
      reason.detail = gap.name;
      break;
  }
  reason.ranks.assign(ranks.begin(), ranks.end());
  return reason;
}

void JudgeSteps(const ReplayedSteps& candidate, const ReplayedSteps& reference,
                std::vector<TensorJudgement>* tensors) {
  const bool any_state = std::any_of(
      tensors->begin(), tensors->end(),
      [](const TensorJudgement& t) { return t.id.role == Role::kOptimState; });
  for (TensorJudgement& t : *tensors) {
    if (!IsAfterStep(t.id.role) || t.reason.kind == ReasonKind::kDamaged) {
      continue;
    }
    if (t.id.pass == Pass::kForward) {
      if (IsOpen(t)) {
        t.verdict = TensorVerdict::kNotCheckable;
        t.explained = true;
        t.reason = Because(ReasonKind::kBeforeStep);
      }
      continue;
    }
    const auto step = candidate.find({t.id.iteration, t.id.fqn});
    if (step == candidate.end()) continue;
    const auto other = reference.find(step->first);
    for (size_t q = 0; q < kStepQuantities; ++q) {
      if (step->second.results[q] != t.id) continue;
      JudgeQuantity(step->second,
                    other == reference.end() ? nullptr : &other->second,
                    static_cast<StepQuantity>(q), &t);
    }
    SayWhyNot(step->second, any_state, &t);
  }
}

}  // namespace ttrace
