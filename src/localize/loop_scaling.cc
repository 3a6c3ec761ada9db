#include "src/localize/loop_scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ttrace {
namespace {

bool IsFactorOfReduced(const Culprit& culprit) {
  return culprit.tensor.role == Role::kGradReduced &&
         !culprit.classes.empty() &&
         culprit.classes.front().bug_class == BugClass::kConstantFactor;
}

// All that were looked at are scaled alike, and were right before.
bool IsOfAll(const GradientFactors& factors, double alpha) {
  return factors.alike == factors.parameters && factors.parameters > 1 &&
         std::fabs(factors.before - 1) < std::fabs(factors.step - 1) &&
         std::fabs(factors.step / alpha - 1) < std::fabs(factors.step - 1) / 2;
}

bool ChangedByLoop(const Hyperparameters& run, const Culprit& culprit) {
  const auto step =
      run.steps.find(StepOfParameter{culprit.iteration, culprit.tensor.fqn});
  return step != run.steps.end() && step->second.contains(kChangedEarly);
}

}  // namespace

void NameLoopScaling(const std::vector<GradientFactors>& factors,
                     const Hyperparameters& candidate,
                     std::vector<Culprit>* culprits) {
  for (Culprit& culprit : *culprits) {
    if (!IsFactorOfReduced(culprit) || !ChangedByLoop(candidate, culprit)) {
      continue;
    }
    const auto of = std::find_if(
        factors.begin(), factors.end(), [&](const GradientFactors& one) {
          return one.iteration == culprit.iteration &&
                 IsOfAll(one, culprit.classes.front().value);
        });
    if (of == factors.end()) continue;
    culprit.direction = Direction::kUpdate;
    culprit.stage = Stage::kOptimizer;
    // Where a reduction is missing or made twice is not where to look.
    culprit.hints = {fmt::format(
        "the loop changes gradients between the backward and the step, and all "
        "{} gradients that were looked at got one factor there, {:.5g} x what "
        "they get in the reference: look at how it reduces, scales or clips "
        "them, and at the norm that it clips by",
        of->parameters, of->step)};
  }
}

}  // namespace ttrace
