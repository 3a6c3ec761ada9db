#include "src/judge/expectations.h"

#include <algorithm>

#include "src/experiment/module_names.h"
#include "src/judge/projection.h"

namespace ttrace {
namespace {

// How many tests a leg takes: norm, projection, element and block of the whole,
// and one for each piece.
int64_t TestsOf(const LegFacts& leg) {
  if (!leg.usable) return 0;
  if (leg.noise.empty()) return 1;
  if (leg.candidate.regions.size() < 2) return 4;
  int64_t pieces = 0;
  for (const InstanceStats& one : leg.candidate.instances) {
    pieces += one.copies;
  }
  return 4 + pieces;
}

bool Repeats(const std::optional<RepeatFacts>& repeat) {
  return !repeat || repeat->bitwise();
}

}  // namespace

Expectations::Expectations(const PackedFacts& tensors, double run_risk) {
  for (const TensorFacts& tensor : tensors) {
    if (!Repeats(tensor.candidate_repeat) ||
        !Repeats(tensor.reference_repeat)) {
      first_unrepeated_ = std::min(first_unrepeated_, tensor.order);
    }
    for (const LegFacts& leg : tensor.legs) {
      tests_ += TestsOf(leg);
      if (!leg.usable || leg.noise.empty() || tensor.exact) continue;
      Pool& pool = pools_[FamilyOf(tensor.id, leg.plan)];
      pool.sum += MeanSquareProjection(Totals(leg.noise));
      ++pool.count;
    }
  }
  risk_ = run_risk / static_cast<double>(std::max<int64_t>(1, tests_));
}

double Expectations::PooledProjection(const TensorId& id, size_t plan) const {
  const auto found = pools_.find(FamilyOf(id, plan));
  if (found == pools_.end()) return 0;
  return found->second.sum / static_cast<double>(found->second.count);
}

Expectations::Family Expectations::FamilyOf(const TensorId& id, size_t plan) {
  return {id.role, id.arg, WithoutLayerNumbers(id.fqn), id.pass, plan};
}

}  // namespace ttrace
