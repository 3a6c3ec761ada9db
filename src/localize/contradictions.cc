#include "src/localize/contradictions.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace ttrace {
namespace {

// What it says needs no bound, no reference or no second run: copies that
// differ, values that are not finite, a step that its inputs do not make.
bool SpeaksForItself(const TensorJudgement& t) {
  return t.replicas_differ || t.nonfinite || t.not_repeatable ||
         t.step_differs() || t.not_updated() ||
         t.reason.kind == ReasonKind::kForeignPart;
}

// Whatever is wrong with what the model is given is in the gradients of its
// parameters. A culprit of the data is judged by the rows that the run read:
// what was put in their place is no culprit, or speaks for itself.
std::optional<Contradiction> CleanGradients(
    const Culprit& culprit, const std::vector<TensorJudgement>& tensors) {
  if (!IsFed(culprit.tensor) || culprit.stage != Stage::kInput) {
    return std::nullopt;
  }
  int64_t clean = 0;
  for (const TensorJudgement& t : tensors) {
    if (t.id.role != Role::kGradReduced ||
        t.id.iteration != culprit.iteration || t.excused) {
      continue;
    }
    if (t.diverged() || t.verdict == TensorVerdict::kUnmatched ||
        t.verdict == TensorVerdict::kNotCheckable) {
      return std::nullopt;
    }
    clean += !t.all_zero;
  }
  if (clean == 0) return std::nullopt;
  return Contradiction{ContradictionKind::kCleanGradients, clean, 0, 0};
}

// A module makes of the same inputs what it made before, or what is wrong is
// not in it. What arrives at a module others have handed over, and gradients of
// parameters collect what was left in them, too.
std::optional<Contradiction> CleanAlone(const Culprit& culprit,
                                        const TensorJudgement& t) {
  const bool made = t.id.role == Role::kOutput || t.id.role == Role::kGradInput;
  if (!made || culprit.found_by != std::vector<std::string>{"dataflow"} ||
      !t.judged_isolated() || t.out_isolated()) {
    return std::nullopt;
  }
  return Contradiction{ContradictionKind::kCleanIsolated, 0,
                       t.isolated->headroom, culprit.headroom};
}

// A bound that means nothing convicts nobody.
std::optional<Contradiction> WideBound(const TensorJudgement& t) {
  const LegJudgement* leg = t.convicting();
  if (leg == nullptr || leg->checkable) return std::nullopt;
  return Contradiction{ContradictionKind::kWideBound, 0, leg->bound, 0};
}

}  // namespace

std::vector<Contradiction> Contradicting(
    const Culprit& culprit, const std::vector<TensorJudgement>& tensors) {
  const auto found = std::find_if(
      tensors.begin(), tensors.end(),
      [&](const TensorJudgement& t) { return t.id == culprit.tensor; });
  if (found == tensors.end() || SpeaksForItself(*found)) return {};
  std::vector<Contradiction> out;
  for (const auto& one : {CleanGradients(culprit, tensors),
                          CleanAlone(culprit, *found), WideBound(*found)}) {
    if (one) out.push_back(*one);
  }
  return out;
}

}  // namespace ttrace
