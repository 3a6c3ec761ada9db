#include "src/compare/reference_instances.h"

#include <algorithm>
#include <tuple>

namespace ttrace {
namespace {

// Values without a batch dimension may still belong to a micro-batch (a scalar
// per micro-batch); where both sides number them alike, like meets like. Of
// copies, the one of the same ranks: between two legs of a run whose copies
// differ, the difference of copies must not pass for a failure to repeat.
const Instance& Counterpart(const InstanceGroup& group, const Instance& other) {
  // They are sorted by both.
  const auto& all = group.instances;
  const auto of_ranks = std::lower_bound(
      all.begin(), all.end(), other, [](const Instance& a, const Instance& b) {
        return std::tie(a.micro_batch, a.ranks) <
               std::tie(b.micro_batch, b.ranks);
      });
  if (of_ranks != all.end() && of_ranks->micro_batch == other.micro_batch &&
      of_ranks->ranks == other.ranks) {
    return *of_ranks;
  }
  const auto of_batch = std::lower_bound(
      all.begin(), of_ranks, other, [](const Instance& a, const Instance& b) {
        return a.micro_batch < b.micro_batch;
      });
  return of_batch != all.end() && of_batch->micro_batch == other.micro_batch
             ? *of_batch
             : all.front();
}

}  // namespace

std::vector<const Layout*> LayoutsOf(const std::vector<InstanceGroup>& groups) {
  std::vector<const Layout*> layouts;
  layouts.reserve(groups.size());
  for (const InstanceGroup& group : groups) layouts.push_back(&group.layout);
  return layouts;
}

std::vector<PlacedInstance> ReferenceInstances::Opposite(
    const Instance& other, const std::vector<size_t>& near) const {
  std::vector<PlacedInstance> out;
  out.reserve(near.size());
  for (const size_t i : near) {
    const InstanceGroup& group = (*groups_)[i];
    out.push_back({Counterpart(group, other), group.layout});
  }
  return out;
}

}  // namespace ttrace
