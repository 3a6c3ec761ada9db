#include "src/compare/compare_tensor.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "src/compare/compare_instances.h"
#include "src/compare/compare_summaries.h"
#include "src/compare/compared_piece.h"
#include "src/compare/equal_copies.h"
#include "src/compare/grouped_once.h"
#include "src/compare/instances.h"
#include "src/compare/layout_overlap.h"
#include "src/compare/overlap_index.h"
#include "src/compare/reference_instances.h"
#include "src/compare/routed_tokens.h"
#include "src/compare/same_bytes.h"
#include "src/compare/worst_copy.h"

namespace ttrace {
namespace {

Error DifferentShapes(const TensorPieces& reference, const Shape& ref,
                      const Shape& cand) {
  const auto text = [](const Shape& shape) {
    std::string s = "[";
    for (size_t d = 0; d < shape.size(); ++d) {
      s += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
    }
    return s + "]";
  };
  return Error(ErrorCode::kIncomparable,
               DescribeTensor(reference) + ": global shape is " + text(ref) +
                   " in the reference and " + text(cand) + " in the candidate");
}

// How the reference is grouped: nothing is said about it.
CompareOptions AsRecorded(const CompareOptions& options) {
  CompareOptions out;
  out.grouped = options.grouped;
  return out;
}

Layout WholeLayout(const Shape& shape) {
  Layout layout;
  for (const int64_t size : shape) {
    DimLayout& dim = layout.dims.emplace_back();
    dim.global_size = size;
    if (size > 0) dim.segments = {{0, size}};
  }
  return layout;
}

// The first copy of each region. Fails where what is recorded of it lies
// elsewhere: rows in another order.
Result<std::vector<const Instance*>> FirstCopies(
    const TensorPieces& pieces, const std::vector<InstanceGroup>& groups) {
  std::vector<const Instance*> out;
  for (const InstanceGroup& group : groups) {
    const Instance& first = group.instances.front();
    for (const Term& term : first.terms) {
      // As it was recorded: a reading of the batch may have moved it since.
      const auto number = static_cast<size_t>(term.record.number());
      if (pieces.trace->records()[number].layout() == group.layout) continue;
      return Error(ErrorCode::kIncomparable,
                   DescribeTensor(pieces) +
                       ": its rows are in another order, which a summary "
                       "cannot be brought into");
    }
    out.push_back(&first);
  }
  return out;
}

// As one region, with one instance.
Status CompareAsWhole(const TensorPieces& reference,
                      const std::vector<InstanceGroup>& refs,
                      const TensorPieces& candidate,
                      const std::vector<InstanceGroup>& cands,
                      TensorComparison* out) {
  InstanceStats whole;
  std::set<int> ranks;
  for (const InstanceGroup& group : cands) {
    for (const Instance& instance : group.instances) {
      ranks.insert(instance.ranks.begin(), instance.ranks.end());
    }
  }
  whole.ranks.assign(ranks.begin(), ranks.end());
  TTRACE_ASSIGN_OR_RETURN(const auto r, FirstCopies(reference, refs));
  TTRACE_ASSIGN_OR_RETURN(const auto c, FirstCopies(candidate, cands));
  TTRACE_ASSIGN_OR_RETURN(const SummaryComparison compared,
                          CompareSummaries(r, c));
  out->fidelity = compared.fidelity;
  out->reordered = compared.reordered;
  out->total = whole.stats = compared.stats;
  out->instances = {std::move(whole)};
  out->regions = {WholeLayout(refs.front().layout.global_shape())};
  return Done{};
}

// Of the copies of one region, the last that was compared: the next one mostly
// has the same bytes, opposite to the same bytes.
class LastCompared {
 public:
  bool IsRepeatedBy(const Instance& instance,
                    const std::vector<PlacedInstance>& opposite) const {
    // Of what has nothing opposite, nothing was read.
    return last_ != nullptr && stats_.count > 0 &&
           SameBytes(*last_, instance) &&
           std::equal(opposite_.begin(), opposite_.end(), opposite.begin(),
                      opposite.end(),
                      [](const Instance* a, const PlacedInstance& b) {
                        return a == &b.instance || (SameBytes(*a, b.instance) &&
                                                    IsVerified(b.instance));
                      }) &&
           IsVerified(instance);
  }
  const ErrorStats& stats() const { return stats_; }

  // `instance` was compared, and has to stay.
  void Set(const Instance& instance,
           const std::vector<PlacedInstance>& opposite,
           const ErrorStats& stats) {
    last_ = &instance;
    opposite_.clear();
    for (const PlacedInstance& one : opposite) {
      opposite_.push_back(&one.instance);
    }
    stats_ = stats;
  }

 private:
  const Instance* last_ = nullptr;
  std::vector<const Instance*> opposite_;
  ErrorStats stats_;
};

InstanceStats StatsOf(const Instance& instance, const ErrorStats& stats,
                      int region) {
  return {instance.ranks.ToVector(), instance.micro_batch, stats, region};
}

// To what was measured of the copy before it.
void AddCopy(const Instance& instance, InstanceStats* like) {
  ++like->copies;
  like->ranks.insert(like->ranks.end(), instance.ranks.begin(),
                     instance.ranks.end());
}

// What the candidate's instances differ by from the reference. False: one was
// compared in place, but not with this.
Result<bool> CompareAllInstances(const ReferenceInstances& instances,
                                 const std::vector<InstanceGroup>& cands,
                                 const CompareOptions& options,
                                 TensorComparison* out) {
  InstanceComparer comparer(options.tile_elements, options.element_scale);
  ErrorSums total;
  for (const InstanceGroup& group : cands) {
    const auto region = static_cast<int>(out->regions.size());
    out->regions.push_back(group.layout);
    const std::vector<size_t> near = instances.Near(group.layout);
    ErrorSums worst;
    std::optional<ErrorStats> worst_stats;
    LastCompared copy;
    double max_elem = 0;
    double max_block_sq_err = 0;
    for (const Instance& instance : group.instances) {
      const auto opposite = instances.Opposite(instance, near);
      if (copy.IsRepeatedBy(instance, opposite)) {
        if (options.join_copies &&
            out->instances.back().micro_batch == instance.micro_batch) {
          AddCopy(instance, &out->instances.back());
        } else {
          out->instances.push_back(StatsOf(instance, copy.stats(), region));
        }
        continue;
      }
      TTRACE_ASSIGN_OR_RETURN(const std::optional<ErrorSums> sums,
                              CompareOrFind(opposite, {instance, group.layout},
                                            options.element_scale, &comparer));
      if (!sums) return false;
      const ErrorStats stats = sums->Stats();
      copy.Set(instance, opposite, stats);
      max_elem = std::max(max_elem, stats.max_elem);
      max_block_sq_err = std::max(max_block_sq_err, stats.max_block_sq_err);
      if (!worst_stats.has_value() || Worse(stats, *worst_stats)) {
        worst = *sums;
        worst_stats = stats;
      }
      out->instances.push_back(StatsOf(instance, stats, region));
    }
    // The replica of the worst norm need not have the worst element.
    worst.max_elem = max_elem;
    worst.max_block_sq_err = max_block_sq_err;
    total.Merge(worst);
  }
  out->total = total.Stats();
  if (options.join_copies) {
    JoinEqualCopies(out);
    return true;
  }
  std::stable_sort(out->instances.begin(), out->instances.end(),
                   [](const InstanceStats& a, const InstanceStats& b) {
                     return std::tie(a.micro_batch, a.ranks) <
                            std::tie(b.micro_batch, b.ranks);
                   });
  return true;
}

// The same for each of `regions` apart. Nothing: one instance was compared in
// place, but not with this.
Result<std::optional<std::vector<ErrorStats>>> CompareInstancesWithin(
    const ReferenceInstances& instances,
    const std::vector<InstanceGroup>& others,
    const std::vector<Layout>& regions, const CompareOptions& options) {
  using Found = std::optional<std::vector<ErrorStats>>;
  InstanceComparer comparer(options.tile_elements, options.element_scale);
  const OverlapIndex others_index(LayoutsOf(others));
  std::vector<ErrorStats> out;
  out.reserve(regions.size());
  for (const Layout& region : regions) {
    ErrorSums total;
    for (const size_t place : others_index.Near(region)) {
      const InstanceGroup& group = others[place];
      ErrorSums worst;
      std::optional<ErrorStats> worst_stats;
      for (const Instance& instance : group.instances) {
        TTRACE_ASSIGN_OR_RETURN(
            const std::optional<ErrorSums> sums,
            CompareOrFindWithin(instances.Opposite(instance, region),
                                {instance, group.layout}, region,
                                options.element_scale, &comparer));
        if (!sums) return Found();
        const ErrorStats stats = sums->Stats();
        if (!worst_stats.has_value() || Worse(stats, *worst_stats)) {
          worst = *sums;
          worst_stats = stats;
        }
      }
      total.Merge(worst);
    }
    out.push_back(total.Stats());
  }
  return Found(std::move(out));
}

Result<std::vector<InstanceGroup>> GroupWithoutOverlap(
    const TensorPieces& pieces) {
  TTRACE_ASSIGN_OR_RETURN(std::vector<InstanceGroup> groups,
                          GroupInstances(pieces, {}));
  const int64_t twice = MeasureOverlap(LayoutsOf(groups), {}).twice_a;
  if (twice == 0) return groups;
  return Error(ErrorCode::kIncomparable,
               DescribeTensor(pieces) + ": pieces overlap in " +
                   std::to_string(twice) + " elements");
}

}  // namespace

Result<TensorComparison> CompareTensor(const TensorPieces& reference,
                                       const TensorPieces& candidate,
                                       const CompareOptions& options) {
  const auto refs_or = GroupShared(reference, AsRecorded(options));
  if (!refs_or.ok()) return refs_or.error().WithContext("reference");
  const auto cands_or = GroupShared(candidate, options);
  if (!cands_or.ok()) return cands_or.error().WithContext("candidate");
  const ReferenceInstances instances(*refs_or);
  const std::vector<InstanceGroup>& refs = instances.groups();
  const std::vector<InstanceGroup>& cands = **cands_or;
  const Shape ref_shape = refs.front().layout.global_shape();
  const Shape cand_shape = cands.front().layout.global_shape();
  if (ref_shape != cand_shape) {
    return DifferentShapes(reference, ref_shape, cand_shape);
  }

  TensorComparison comparison;
  const LayoutOverlap coverage =
      MeasureOverlap(LayoutsOf(refs), LayoutsOf(cands));
  TTRACE_ASSIGN_OR_RETURN(comparison.routed,
                          JoinTokens(reference, candidate, options));
  if (comparison.routed) {
    const int64_t width = ElementsOfAToken(ref_shape);
    comparison.candidate_gap =
        comparison.routed->candidate * width - coverage.both - coverage.only_b;
    comparison.reference_gap =
        comparison.routed->reference * width - coverage.both - coverage.only_a;
  } else {
    comparison.candidate_gap = coverage.only_a;
    comparison.reference_gap = coverage.only_b;
    comparison.common_gap = refs.front().layout.global_count() - coverage.both -
                            coverage.only_a - coverage.only_b;
  }
  comparison.reference_overlap = coverage.twice_a;
  comparison.candidate_overlap = coverage.twice_b;
  if (!HasSummaries(reference) && !HasSummaries(candidate) &&
      !WasComparedInPlace(reference)) {
    TTRACE_ASSIGN_OR_RETURN(
        const bool done,
        CompareAllInstances(instances, cands, options, &comparison));
    if (done) return comparison;
    comparison.regions.clear();
    comparison.instances.clear();
  }
  if (comparison.routed || !comparison.complete()) {
    return Error(ErrorCode::kIncomparable,
                 DescribeTensor(reference) +
                     ": only a summary was kept of it, and the two sides do "
                     "not hold the same elements once each");
  }
  TTRACE_RETURN_IF_ERROR(
      CompareAsWhole(reference, refs, candidate, cands, &comparison));
  return comparison;
}

Result<std::vector<ErrorStats>> CompareWithin(
    const TensorPieces& reference, const TensorPieces& other,
    const std::vector<Layout>& regions, const CompareOptions& options) {
  TTRACE_ASSIGN_OR_RETURN(SharedGroups grouped,
                          GroupShared(reference, AsRecorded(options)));
  const ReferenceInstances instances(std::move(grouped));
  const std::vector<InstanceGroup>& refs = instances.groups();
  TTRACE_ASSIGN_OR_RETURN(const SharedGroups others_grouped,
                          GroupShared(other, options));
  const std::vector<InstanceGroup>& others = *others_grouped;
  const Shape shape = refs.front().layout.global_shape();
  if (shape != others.front().layout.global_shape()) {
    return DifferentShapes(reference, shape,
                           others.front().layout.global_shape());
  }
  if (!HasSummaries(reference) && !HasSummaries(other) &&
      !WasComparedInPlace(reference)) {
    TTRACE_ASSIGN_OR_RETURN(
        auto found,
        CompareInstancesWithin(instances, others, regions, options));
    if (found) return *std::move(found);
  }
  if (regions.size() != 1 || regions.front() != WholeLayout(shape)) {
    return Error(ErrorCode::kIncomparable,
                 DescribeTensor(reference) +
                     ": only a summary was kept of it, of no part apart");
  }
  TensorComparison whole;
  TTRACE_RETURN_IF_ERROR(
      CompareAsWhole(reference, refs, other, others, &whole));
  return std::vector<ErrorStats>{whole.total};
}

Result<SquareSum> SumOfSquares(const TensorPieces& pieces) {
  if (HasSummaries(pieces) || WasComparedInPlace(pieces)) {
    TTRACE_ASSIGN_OR_RETURN(const std::vector<InstanceGroup> groups,
                            GroupWithoutOverlap(pieces));
    TTRACE_ASSIGN_OR_RETURN(const auto first, FirstCopies(pieces, groups));
    TTRACE_ASSIGN_OR_RETURN(const SummaryComparison own,
                            CompareSummaries(first, first));
    return SquareSum{own.stats.nonfinite_ref != 0
                         ? std::numeric_limits<double>::quiet_NaN()
                         : own.stats.sum_sq_ref,
                     own.stats.count};
  }
  TTRACE_ASSIGN_OR_RETURN(const ErrorSums sums, ExactSquares(pieces));
  const ErrorStats stats = sums.Stats();
  SquareSum out = {stats.sum_sq_ref, stats.count};
  if (stats.nonfinite_ref != 0) {
    out.sum = std::numeric_limits<double>::quiet_NaN();
  }
  return out;
}

Result<ErrorSums> ExactSquares(const TensorPieces& pieces) {
  TTRACE_ASSIGN_OR_RETURN(const std::vector<InstanceGroup> groups,
                          GroupWithoutOverlap(pieces));
  InstanceComparer comparer(CompareOptions{}.tile_elements);
  ErrorSums sums;
  for (const InstanceGroup& group : groups) {
    const PlacedInstance first = {group.instances.front(), group.layout};
    TTRACE_RETURN_IF_ERROR(comparer.Compare(first, first, &sums));
  }
  return sums;
}

}  // namespace ttrace
