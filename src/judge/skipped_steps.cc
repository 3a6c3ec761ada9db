#include "src/judge/skipped_steps.h"

#include <algorithm>

#include "src/experiment/parameter_roles.h"

namespace ttrace {
namespace {

// Iterations that ended without a step in a run that computes in fp16: the
// notes come from the optimizer's own search for overflow, or from a loop that
// searches by itself.
void AddSkipped(const Side& side, std::set<int>* iterations) {
  if (side.ComputeDType() != DType::kF16) return;
  for (const auto& [iteration, step] : side.facts().skipped_steps) {
    iterations->insert(iteration);
  }
}

std::set<int> ClearedByAll(const Side& side) {
  std::set<int> out;
  for (const auto& [iteration, step] : side.facts().skipped_steps) {
    if (step.cleared_on.size() == side.trace().ranks().size()) {
      out.insert(iteration);
    }
  }
  return out;
}

std::set<int> ClearedWithin(const Side& side) {
  std::set<int> out;
  for (const auto& [at, clearing] : side.facts().cleared_gradients.seen) {
    out.insert(at.first);
  }
  return out;
}

bool ShowsOverflow(const TensorFacts& tensor) {
  if (!IsGradient(tensor.id.role)) return false;
  if (tensor.own) return tensor.own->total.nonfinite_cand > 0;
  return std::any_of(
      tensor.legs.begin(), tensor.legs.end(), [](const LegFacts& leg) {
        return leg.usable && leg.candidate.total.nonfinite_differ > 0;
      });
}

}  // namespace

SkippedSteps::SkippedSteps(const Side* reference, const Side& candidate,
                           const PackedFacts& tensors) {
  cleared_ = ClearedByAll(candidate);
  if (reference != nullptr) {
    const std::set<int> there = ClearedByAll(*reference);
    std::erase_if(cleared_, [&](int it) { return !there.contains(it); });
  }
  if (reference != nullptr) {
    const std::set<int> theirs = ClearedWithin(*reference);
    for (const int iteration : ClearedWithin(candidate)) {
      if (theirs.contains(iteration)) with_cleared_pass_.insert(iteration);
    }
    with_cleared_pass_.insert(cleared_.begin(), cleared_.end());
  }
  std::set<int> skipped;
  AddSkipped(candidate, &skipped);
  if (reference != nullptr) AddSkipped(*reference, &skipped);
  if (skipped.empty()) return;
  for (const TensorFacts& tensor : tensors) {
    if (skipped.contains(tensor.id.iteration) && ShowsOverflow(tensor)) {
      overflowed_.insert(tensor.id.iteration);
    }
  }
}

bool SkippedSteps::MayOverflow(const TensorId& id) const {
  return IsGradient(id.role) && overflowed_.contains(id.iteration);
}

bool SkippedSteps::LeaveOutStep(int iteration) const {
  return overflowed_.contains(iteration);
}

bool SkippedSteps::OfClearedPass(const TensorId& id) const {
  const bool scaled = id.role == Role::kLoss || id.role == Role::kGradOutput ||
                      id.role == Role::kGradInput ||
                      id.role == Role::kGradLocal;
  return scaled && with_cleared_pass_.contains(id.iteration);
}

bool SkippedSteps::Clear(const TensorId& id) const {
  return id.role == Role::kGradReduced && cleared_.contains(id.iteration);
}

}  // namespace ttrace
