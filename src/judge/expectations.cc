#include "src/judge/expectations.h"

#include <algorithm>

#include "src/experiment/module_names.h"
#include "src/experiment/parameter_roles.h"
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

// Null: none is.
const LegFacts* FirstUsable(const TensorFacts& tensor) {
  const auto leg = std::find_if(tensor.legs.begin(), tensor.legs.end(),
                                [](const LegFacts& one) { return one.usable; });
  return leg == tensor.legs.end() ? nullptr : &*leg;
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
    AddArriving(tensor);
    AddLocalGradient(tensor);
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

void Expectations::AddArriving(const TensorFacts& tensor) {
  if (tensor.id.role != Role::kGradOutput || tensor.exact) return;
  const LegFacts* leg = FirstUsable(tensor);
  if (leg == nullptr) return;
  Arriving& arriving = arriving_[{tensor.id.iteration, tensor.id.fqn}];
  if (arriving.count == 0) arriving.arg = tensor.id.arg;
  arriving.one_output &= arriving.arg == tensor.id.arg;
  arriving.sum_sq += leg->candidate.total.sum_sq_ref;
  arriving.count += leg->candidate.total.count;
}

void Expectations::AddLocalGradient(const TensorFacts& tensor) {
  if (tensor.id.role != Role::kGradLocal) return;
  const LegFacts* leg = FirstUsable(tensor);
  if (leg == nullptr) return;
  local_gradients_.emplace(std::pair(tensor.id.iteration, tensor.id.fqn),
                           leg->candidate.total);
}

GradientParts Expectations::PartsBeside(const TensorId& id,
                                        const Rounding& rounding) const {
  const auto local = local_gradients_.find({id.iteration, id.fqn});
  if (local == local_gradients_.end()) return {};
  const double sum_sq = local->second.sum_sq_ref;
  if (!(sum_sq > 0)) return {};
  const GradientParts& reference = rounding.reference_parts;
  const GradientParts& candidate = rounding.candidate_parts;
  const auto count = static_cast<double>(local->second.count);
  return {std::max(reference.squares, candidate.squares) / sum_sq,
          std::max(reference.largest, candidate.largest) * count / sum_sq};
}

double Expectations::TermsOf(const TensorFacts& facts) const {
  const TensorId& id = facts.id;
  if (!IsParameterGradient(id.role) || !facts.vector || facts.legs.empty()) {
    return 0;
  }
  const std::string module = ParentName(id.fqn);
  if (id.fqn.substr(module.empty() ? 0 : module.size() + 1) != "bias") return 0;
  const auto found = arriving_.find({id.iteration, module});
  if (found == arriving_.end() || !found->second.one_output) return 0;
  // Each element of the sum has as many terms as any other.
  const int64_t elements = facts.legs.front().candidate.total.count;
  if (elements == 0 || found->second.count % elements != 0) return 0;
  return found->second.sum_sq;
}

Expectations::Family Expectations::FamilyOf(const TensorId& id, size_t plan) {
  return {id.role, id.arg, WithoutLayerNumbers(id.fqn), id.pass, plan};
}

}  // namespace ttrace
