#include "src/compare/reference_instances.h"

namespace ttrace {
namespace {

// Values without a batch dimension may still belong to a micro-batch (a scalar
// per micro-batch); where both sides number them alike, like meets like. Of
// copies, the one of the same ranks: between two legs of a run whose copies
// differ, the difference of copies must not pass for a failure to repeat.
const Instance& Counterpart(const InstanceGroup& group, const Instance& other) {
  const Instance* found = nullptr;
  for (const Instance& instance : group.instances) {
    if (instance.micro_batch != other.micro_batch) continue;
    if (instance.ranks == other.ranks) return instance;
    if (found == nullptr) found = &instance;
  }
  return found != nullptr ? *found : group.instances.front();
}

}  // namespace

std::vector<const Layout*> LayoutsOf(const std::vector<InstanceGroup>& groups) {
  std::vector<const Layout*> layouts;
  layouts.reserve(groups.size());
  for (const InstanceGroup& group : groups) layouts.push_back(&group.layout);
  return layouts;
}

std::vector<PlacedInstance> ReferenceInstances::Opposite(
    const Instance& other, const Layout& region) const {
  std::vector<PlacedInstance> out;
  for (const size_t i : index_.Near(region)) {
    out.push_back({Counterpart(groups_[i], other), groups_[i].layout});
  }
  return out;
}

}  // namespace ttrace
