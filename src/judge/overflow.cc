#include "src/judge/overflow.h"

#include <algorithm>

#include "src/experiment/parameter_roles.h"

namespace ttrace {
namespace {

// Iterations that ended without a step in a run that computes in fp16: the
// notes come from the optimizer's own search for overflow.
void AddSkipped(const Side& side, std::set<int>* iterations) {
  if (side.ComputeDType() != DType::kF16) return;
  for (const RunNote& note : side.notes()) {
    if (note.kind != NoteKind::kSkippedStep || note.numbers.empty()) continue;
    iterations->insert(static_cast<int>(note.numbers.front()));
  }
}

bool Shows(const TensorFacts& tensor) {
  if (!IsGradient(tensor.id.role)) return false;
  if (tensor.own) return tensor.own->total.nonfinite_cand > 0;
  return std::any_of(
      tensor.legs.begin(), tensor.legs.end(), [](const LegFacts& leg) {
        return leg.usable && leg.candidate.total.nonfinite_differ > 0;
      });
}

}  // namespace

Overflows::Overflows(const Side* reference, const Side& candidate,
                     const PackedFacts& tensors) {
  std::set<int> skipped;
  AddSkipped(candidate, &skipped);
  if (reference != nullptr) AddSkipped(*reference, &skipped);
  if (skipped.empty()) return;
  for (const TensorFacts& tensor : tensors) {
    if (skipped.contains(tensor.id.iteration) && Shows(tensor)) {
      iterations_.insert(tensor.id.iteration);
    }
  }
}

bool Overflows::Reach(const TensorId& id) const {
  return IsGradient(id.role) && iterations_.contains(id.iteration);
}

bool Overflows::LeaveOutStep(int iteration) const {
  return iterations_.contains(iteration);
}

}  // namespace ttrace
