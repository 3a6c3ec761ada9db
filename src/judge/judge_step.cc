#include "src/judge/judge_step.h"

#include <fmt/format.h>

#include <algorithm>
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
    if (leg.leg == kReal) return leg;
  }
  LegJudgement leg;
  leg.leg = kReal;
  t->legs.insert(t->legs.begin(), std::move(leg));
  return t->legs.front();
}

// The step alone decides: that values differ from the reference's says nothing.
void Decide(const Test& test, const StepErrors& errors, Outcome said,
            TensorJudgement* t) {
  LegJudgement leg;
  leg.leg = kReal;
  leg.stats = RealLeg(t).stats;
  leg.err = test.value;
  leg.bound = test.bound;
  leg.ranks.assign(errors.ranks.begin(), errors.ranks.end());
  leg.Add(test);
  said.ranks = leg.ranks;
  said.deciding_leg = 0;
  said.nonfinite = t->nonfinite;
  t->legs = {std::move(leg)};
  t->Conclude(std::move(said));
}

Outcome StepIsOff(const StepErrors& errors, bool diverged_before) {
  Reason reason = Because(ReasonKind::kStepDiffers);
  reason.counts = {errors.out, errors.judged};
  reason.numbers = {errors.error, errors.bound};
  Outcome out = Flagged({}, std::move(reason));
  // Copies and values that are not finite stay what they were found to be.
  if (!diverged_before) out.headroom = errors.headroom;
  return out;
}

void JudgeQuantity(const ReplayedStep& step, const ReplayedStep* reference,
                   StepQuantity quantity, TensorJudgement* t) {
  const StepErrors& errors = step.Of(quantity);
  if (errors.judged == 0) return;
  const Test test = TestOf(errors);
  const bool off_in_both =
      errors.out > 0 && reference != nullptr && reference->Of(quantity).out > 0;
  if (errors.out > 0 && !off_in_both) {
    Decide(test, errors, StepIsOff(errors, t->diverged()), t);
  } else if (errors.out == 0 && IsOpen(*t) && step.whole) {
    Outcome good = Settled(TensorVerdict::kWithin, {});
    good.headroom = test.headroom;
    Decide(test, errors, std::move(good), t);
  } else {
    RealLeg(t).tests.push_back(test);  // decides nothing
    if (off_in_both && IsOpen(*t)) {
      t->Conclude(Excused(ReasonKind::kReferenceStep));
    }
  }
}

void SayWhyNot(const ReplayedStep& step, bool any_state, TensorJudgement* t) {
  if (t->verdict != TensorVerdict::kNotCheckable ||
      t->reason.kind != ReasonKind::kAfterStep) {
    return;
  }
  if (step.gaps.empty()) {
    if (step.whole) t->Conclude(Excused(ReasonKind::kAfterGoodStep));
    return;
  }
  const auto& [gap, ranks] = *step.gaps.begin();
  // A run of which no state is recorded at all says so as a whole.
  if (!any_state && gap.kind == StepGap::Kind::kNotRecorded) return;
  t->Conclude(Excused(ReasonOf(gap, ranks)));
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
      if (IsOpen(t)) t.Conclude(Excused(ReasonKind::kBeforeStep));
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
