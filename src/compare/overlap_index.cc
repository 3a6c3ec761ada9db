#include "src/compare/overlap_index.h"

#include <algorithm>
#include <set>

namespace ttrace {
namespace {

int64_t BeginOf(const DimLayout& dim) {
  int64_t begin = dim.global_size;
  for (const Segment& segment : dim.segments) {
    begin = std::min(begin, segment.begin);
  }
  return begin;
}

int64_t EndOf(const DimLayout& dim) {
  int64_t end = 0;
  for (const Segment& segment : dim.segments) {
    end = std::max(end, segment.begin + segment.size);
  }
  return end;
}

}  // namespace

OverlapIndex::OverlapIndex(const std::vector<const Layout*>& layouts) {
  size_t most = 0;
  const size_t dims = layouts.empty() ? 0 : layouts.front()->dims.size();
  for (size_t d = 0; d < dims; ++d) {
    std::set<int64_t> begins;
    for (const Layout* layout : layouts) {
      begins.insert(BeginOf(layout->dims[d]));
    }
    if (begins.size() > most) {
      most = begins.size();
      dim_ = d;
    }
  }
  for (const Layout* layout : layouts) {
    Affects reach = ReachOf(*layout);
    reach.place = reaches_.size();
    longest_ = std::max(longest_, reach.end - reach.begin);
    reaches_.push_back(reach);
  }
  std::sort(
      reaches_.begin(), reaches_.end(),
      [](const Affects& a, const Affects& b) { return a.begin < b.begin; });
}

OverlapIndex::Affects OverlapIndex::ReachOf(const Layout& layout) const {
  // A scalar has no dimension, and is everywhere.
  if (layout.dims.empty()) return {0, 1, 0};
  return {BeginOf(layout.dims[dim_]), EndOf(layout.dims[dim_]), 0};
}

std::vector<size_t> OverlapIndex::Near(const Layout& region) const {
  const Affects reach = ReachOf(region);
  std::vector<size_t> out;
  auto at = std::lower_bound(
      reaches_.begin(), reaches_.end(), reach.begin - longest_,
      [](const Affects& r, int64_t begin) { return r.begin < begin; });
  for (; at != reaches_.end() && at->begin < reach.end; ++at) {
    if (at->end > reach.begin) out.push_back(at->place);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace ttrace
