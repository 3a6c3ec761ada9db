#include "src/check/standing_culprits.h"

#include <algorithm>
#include <utility>

#include "src/experiment/parameter_roles.h"
#include "src/judge/one_factor.h"

namespace ttrace {
namespace {

bool IsOfReduction(Role role) {
  return IsParameterGradient(role) || role == Role::kGradNorm;
}

// Copies that differ, steps that are wrong by themselves, and ranks that read
// one another's data.
bool NeedsNoReference(const TensorJudgement& t) {
  return t.replicas_differ || t.step_differs() ||
         t.reason.kind == ReasonKind::kForeignPart;
}

// Whether a culprit of one iteration comes before that moment. What the step
// made comes after what it was told.
bool IsBefore(const Culprit& culprit, Moment moment) {
  switch (moment) {
    case Moment::kBegin:
      return false;
    case Moment::kBackward:
      return culprit.direction == Direction::kForward;
    case Moment::kStep:
      return culprit.direction != Direction::kUpdate;
    case Moment::kAfterStep:
      return true;
  }
  return true;
}

}  // namespace

Excuses ExcusesOf(const std::vector<RunNote>& notes) {
  Excuses out;
  for (const RunNote& note : notes) {
    switch (note.kind) {
      case NoteKind::kUnsupported:
      case NoteKind::kDamage:
        out.nothing_stands = true;
        out.nothing_is_comparable = true;
        break;
      case NoteKind::kOtherRows:
      case NoteKind::kComputation:
      case NoteKind::kDropout:
      case NoteKind::kNotGrafted:
        out.nothing_is_comparable = true;
        break;
      default:
        break;
    }
  }
  return out;
}

Standing WithoutExcused(std::vector<Culprit> culprits,
                        const std::vector<TensorJudgement>& tensors,
                        const Excuses& excuses) {
  Standing out;
  for (Culprit& culprit : culprits) {
    // Culprits are few, tensors are many.
    const auto found = std::find_if(
        tensors.begin(), tensors.end(),
        [&](const TensorJudgement& t) { return t.id == culprit.tensor; });
    const TensorJudgement* t = found == tensors.end() ? nullptr : &*found;
    if (excuses.nothing_is_comparable &&
        (excuses.nothing_stands || t == nullptr || !NeedsNoReference(*t))) {
      continue;
    }
    if (excuses.incomplete_gradients.contains(culprit.iteration) &&
        IsOfReduction(culprit.tensor.role)) {
      continue;
    }
    if (excuses.unlike_gradients.contains(culprit.iteration) &&
        culprit.tensor.role == Role::kGradReduced && t != nullptr &&
        t->deciding() != nullptr && IsOutByOneFactor(*t->deciding())) {
      out.excused_factors = true;
      continue;
    }
    out.culprits.push_back(std::move(culprit));
  }
  return out;
}

std::vector<Culprit> FirstDiverged(
    const std::vector<TensorJudgement>& tensors) {
  const auto first =
      std::find_if(tensors.begin(), tensors.end(),
                   [](const TensorJudgement& t) { return t.diverged(); });
  if (first == tensors.end()) return {};
  Culprit culprit;
  culprit.fqn = first->id.fqn;
  culprit.tensor = first->id;
  culprit.ranks = first->ranks;
  culprit.iteration = first->id.iteration;
  culprit.headroom = first->headroom;
  culprit.where =
      "the first tensor out of bound in execution order; what it was made "
      "from is not recorded";
  culprit.affected.examples = {first->id.fqn};
  return {std::move(culprit)};
}

void Insert(std::vector<Culprit> found, Moment moment,
            std::vector<Culprit>* culprits) {
  // Behind a step each comes after those before it, else in front of them.
  if (moment != Moment::kAfterStep) std::reverse(found.begin(), found.end());
  for (Culprit& culprit : found) {
    const auto after =
        std::find_if(culprits->begin(), culprits->end(), [&](const Culprit& c) {
          return c.iteration > culprit.iteration ||
                 (c.iteration == culprit.iteration && !IsBefore(c, moment));
        });
    culprits->insert(after, std::move(culprit));
  }
}

}  // namespace ttrace
