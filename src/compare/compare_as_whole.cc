#include "src/compare/compare_as_whole.h"

#include <algorithm>
#include <set>
#include <utility>

#include "src/compare/first_copies.h"
#include "src/compare/summaries/compare_summaries.h"

namespace ttrace {
namespace {

const Instance* OfMicroBatch(const InstanceGroup& group, int micro_batch) {
  const auto found = std::find_if(
      group.instances.begin(), group.instances.end(),
      [&](const Instance& one) { return one.micro_batch == micro_batch; });
  return found == group.instances.end() ? nullptr : &*found;
}

// What the reference holds in the same place: on the same ranks if it can be,
// as a sum's terms have their digests apart. Nothing where it is cut otherwise.
const Instance* Opposite(const std::vector<InstanceGroup>& refs,
                         const InstanceGroup& place, const Instance& copy) {
  for (const InstanceGroup& group : refs) {
    if (group.layout != place.layout) continue;
    for (const Instance& one : group.instances) {
      if (one.micro_batch == copy.micro_batch && one.ranks == copy.ranks) {
        return &one;
      }
    }
    return OfMicroBatch(group, copy.micro_batch);
  }
  return nullptr;
}

Result<bool> SameDigests(const Instance& a, const Instance& b) {
  TTRACE_ASSIGN_OR_RETURN(const SummaryComparison compared,
                          CompareSummaries({&a}, {&b}));
  return compared.stats.bitwise_equal();
}

// Ranks by what their copies are. `open`: what is there is cut otherwise in the
// reference, and is as equal as the whole.
struct RanksOfCopies {
  std::set<int> equal;
  std::set<int> differing;
  std::set<int> open;
};

Status AddCopy(const std::vector<InstanceGroup>& refs,
               const InstanceGroup& place, const Instance& copy,
               RanksOfCopies* out) {
  const Instance* opposite = Opposite(refs, place, copy);
  const Instance* other =
      opposite != nullptr ? opposite : OfMicroBatch(place, copy.micro_batch);
  bool same = other == &copy;
  if (!same) {
    TTRACE_ASSIGN_OR_RETURN(same, SameDigests(*other, copy));
  }
  std::set<int>& ranks = !same                 ? out->differing
                         : opposite != nullptr ? out->equal
                                               : out->open;
  ranks.insert(copy.ranks.begin(), copy.ranks.end());
  return Done{};
}

std::vector<int> Without(const std::set<int>& ranks,
                         const std::set<int>& others) {
  std::vector<int> out;
  std::set_difference(ranks.begin(), ranks.end(), others.begin(), others.end(),
                      std::back_inserter(out));
  return out;
}

// Of no element that differs.
ErrorStats Equal(const ErrorStats& whole) {
  ErrorStats out;
  out.count = whole.count;
  out.nonfinite_ref = out.nonfinite_cand = whole.nonfinite_ref;
  out.sum_sq_ref = whole.sum_sq_ref;
  out.max_abs_ref = whole.max_abs_ref;
  return out;
}

// Of a whole that differs, or of which a copy does.
void AddInstances(RanksOfCopies ranks, TensorComparison* out) {
  std::set<int>& as_whole =
      out->total.bitwise_equal() ? ranks.equal : ranks.differing;
  as_whole.insert(ranks.open.begin(), ranks.open.end());
  // The sum of equal digests is equal: that it is not means that a term is not.
  if (ranks.differing.empty() && !out->total.bitwise_equal()) {
    std::swap(ranks.equal, ranks.differing);
  }
  InstanceStats differing;
  differing.stats = out->total;
  differing.ranks.assign(ranks.differing.begin(), ranks.differing.end());
  if (!differing.ranks.empty()) {
    out->total.mismatched = std::max<int64_t>(out->total.mismatched, 1);
    differing.stats.mismatched = out->total.mismatched;
  }
  InstanceStats equal;
  equal.stats = Equal(out->total);
  equal.ranks = Without(ranks.equal, ranks.differing);
  for (InstanceStats* one : {&equal, &differing}) {
    if (!one->ranks.empty()) out->instances.push_back(std::move(*one));
  }
  std::sort(out->instances.begin(), out->instances.end(),
            [](const InstanceStats& a, const InstanceStats& b) {
              return a.ranks < b.ranks;
            });
}

}  // namespace

Layout WholeLayout(const Shape& shape) {
  Layout layout;
  for (const int64_t size : shape) {
    DimLayout& dim = layout.dims.emplace_back();
    dim.global_size = size;
    if (size > 0) dim.segments = {{0, size}};
  }
  return layout;
}

Status CompareAsWhole(const TensorPieces& reference,
                      const std::vector<InstanceGroup>& refs,
                      const TensorPieces& candidate,
                      const std::vector<InstanceGroup>& cands,
                      TensorComparison* out) {
  TTRACE_ASSIGN_OR_RETURN(const auto r, FirstCopies(reference, refs));
  TTRACE_ASSIGN_OR_RETURN(const auto c, FirstCopies(candidate, cands));
  TTRACE_ASSIGN_OR_RETURN(const SummaryComparison compared,
                          CompareSummaries(r, c));
  out->fidelity = compared.fidelity;
  out->reordered = compared.reordered;
  out->total = compared.stats;
  out->regions = {WholeLayout(refs.front().layout.global_shape())};
  RanksOfCopies ranks;
  for (const InstanceGroup& group : cands) {
    for (const Instance& copy : group.instances) {
      // Of an equal whole each place's first copy is equal.
      if (compared.stats.bitwise_equal() && &copy == &group.instances.front()) {
        ranks.equal.insert(copy.ranks.begin(), copy.ranks.end());
        continue;
      }
      TTRACE_RETURN_IF_ERROR(AddCopy(refs, group, copy, &ranks));
    }
  }
  AddInstances(std::move(ranks), out);
  return Done{};
}

}  // namespace ttrace
