#include "src/compare/layout_overlap.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

// Layouts are cross products, so dimensions can be handled one after the other:
// indices of one dimension that are held by the same subset of layouts are
// alike in all others. Each dimension is swept once per subset; the cost
// depends on the number of layouts and segments, never on that of elements.
class OverlapSearch {
 public:
  OverlapSearch(const std::vector<const Layout*>& a,
                const std::vector<const Layout*>& b)
      : layouts_(a), first_b_(static_cast<int>(a.size())) {
    layouts_.insert(layouts_.end(), b.begin(), b.end());
    rank_ = layouts_.empty() ? 0 : layouts_.front()->dims.size();
  }

  LayoutOverlap Run() {
    std::vector<int> all;
    for (size_t i = 0; i < layouts_.size(); ++i) {
      all.push_back(static_cast<int>(i));
    }
    return Dimension(0, all);
  }

 private:
  using Subset = std::vector<int>;  // sorted indices into layouts_

  LayoutOverlap Leaf(const Subset& subset) const {
    const auto b =
        subset.end() - std::lower_bound(subset.begin(), subset.end(), first_b_);
    const auto a = static_cast<std::ptrdiff_t>(subset.size()) - b;
    LayoutOverlap coverage;
    coverage.both = a > 0 && b > 0 ? 1 : 0;
    coverage.only_a = a > 0 && b == 0 ? 1 : 0;
    coverage.only_b = a == 0 && b > 0 ? 1 : 0;
    coverage.twice_a = a > 1 ? 1 : 0;
    coverage.twice_b = b > 1 ? 1 : 0;
    return coverage;
  }

  // LayoutOverlap of dimensions d and later, by the layouts of `subset` alone.
  LayoutOverlap Dimension(size_t d, const Subset& subset) {
    if (subset.empty()) return {};
    if (d == rank_) return Leaf(subset);
    const auto known = known_.find({d, subset});
    if (known != known_.end()) return known->second;

    std::vector<std::tuple<int64_t, bool, int>> events;  // at, enters, layout
    for (const int i : subset) {
      for (const Segment& segment :
           layouts_[static_cast<size_t>(i)]->dims[d].segments) {
        if (segment.size <= 0) continue;
        events.emplace_back(segment.begin, true, i);
        events.emplace_back(segment.begin + segment.size, false, i);
      }
    }
    std::sort(events.begin(), events.end());  // leaving before entering
    std::map<Subset, int64_t> lengths;
    std::set<int> active;
    int64_t at = 0;
    for (const auto& [position, enters, layout] : events) {
      if (position > at && !active.empty()) {
        lengths[Subset(active.begin(), active.end())] += position - at;
      }
      at = position;
      if (enters) {
        active.insert(layout);
      } else {
        active.erase(layout);
      }
    }

    LayoutOverlap total;
    for (const auto& [inner, length] : lengths) {
      const LayoutOverlap part = Dimension(d + 1, inner);
      total.both += length * part.both;
      total.only_a += length * part.only_a;
      total.only_b += length * part.only_b;
      total.twice_a += length * part.twice_a;
      total.twice_b += length * part.twice_b;
    }
    known_[{d, subset}] = total;
    return total;
  }

  std::vector<const Layout*> layouts_;
  int first_b_;
  size_t rank_ = 0;
  std::map<std::pair<size_t, Subset>, LayoutOverlap> known_;
};

}  // namespace

LayoutOverlap MeasureOverlap(const std::vector<const Layout*>& a,
                             const std::vector<const Layout*>& b) {
  return OverlapSearch(a, b).Run();
}

}  // namespace ttrace
