// ReferenceInstances: what of a reference stands opposite a candidate's
// instance. One place says it, so that a comparison made where the candidate
// ran is the one that a check would make.
//
// Thread safety: const after construction. What it was made of must outlive it.

#ifndef TTRACE_SRC_COMPARE_REFERENCE_INSTANCES_H_
#define TTRACE_SRC_COMPARE_REFERENCE_INSTANCES_H_

#include <memory>
#include <utility>
#include <vector>

#include "src/compare/grouped_once.h"
#include "src/compare/instances.h"
#include "src/compare/overlap_index.h"

namespace ttrace {

std::vector<const Layout*> LayoutsOf(const std::vector<InstanceGroup>& groups);

class ReferenceInstances {
 public:
  // REQUIRES: `groups` is not empty, and of one global shape.
  explicit ReferenceInstances(SharedGroups groups)
      : groups_(std::move(groups)), index_(LayoutsOf(*groups_)) {}
  explicit ReferenceInstances(std::vector<InstanceGroup> groups)
      : ReferenceInstances(std::make_shared<const std::vector<InstanceGroup>>(
            std::move(groups))) {}

  const std::vector<InstanceGroup>& groups() const { return *groups_; }

  // One instance of each region near `region`, which is of the same global
  // shape: that for `other`.
  std::vector<PlacedInstance> Opposite(const Instance& other,
                                       const Layout& region) const {
    return Opposite(other, Near(region));
  }
  // In two steps, for the many copies of one region.
  std::vector<size_t> Near(const Layout& region) const {
    return index_.Near(region);
  }
  std::vector<PlacedInstance> Opposite(const Instance& other,
                                       const std::vector<size_t>& near) const;

 private:
  SharedGroups groups_;
  OverlapIndex index_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_REFERENCE_INSTANCES_H_
