#include "src/compare/merge_comparisons.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "src/compare/by_place.h"
#include "src/compare/layout_overlap.h"
#include "src/compare/routed_tokens.h"
#include "src/compare/worst_copy.h"

namespace ttrace {
namespace {

using Places = std::map<Layout, MergedComparison::Source, ByPlace>;

Status CheckPlaces(const Places& places) {
  std::vector<const Layout*> layouts;
  for (const auto& [layout, source] : places) {
    if (layout.global_shape() != places.begin()->first.global_shape()) {
      return Error(ErrorCode::kIncomparable,
                   "parts of tensors of different shapes");
    }
    layouts.push_back(&layout);
  }
  const LayoutOverlap overlap = MeasureOverlap(layouts, {});
  if (overlap.twice_a == 0) return Done{};
  return Error(
      ErrorCode::kIncomparable,
      "parts overlap in " + std::to_string(overlap.twice_a) + " elements");
}

// Regions, and instances that name them by their new index.
void JoinInstances(const std::vector<const TensorComparison*>& parts,
                   const Places& places, MergedComparison* out) {
  std::map<Layout, int, ByPlace> index;
  for (const auto& [layout, source] : places) {
    index.emplace(layout, static_cast<int>(index.size()));
    out->comparison.regions.push_back(layout);
    out->sources.push_back(source);
  }
  for (const TensorComparison* part : parts) {
    for (InstanceStats instance : part->instances) {
      const Layout& region =
          part->regions[static_cast<size_t>(instance.region)];
      instance.region = index.at(region);
      out->comparison.instances.push_back(std::move(instance));
    }
  }
  std::stable_sort(out->comparison.instances.begin(),
                   out->comparison.instances.end(),
                   [](const InstanceStats& a, const InstanceStats& b) {
                     return std::tie(a.micro_batch, a.ranks, a.region) <
                            std::tie(b.micro_batch, b.ranks, b.region);
                   });
}

// Of each region the worst of its copies.
std::vector<ErrorStats> WorstOfEach(const TensorComparison& comparison) {
  std::vector<WorstCopy> worst(comparison.regions.size());
  for (const InstanceStats& instance : comparison.instances) {
    worst[static_cast<size_t>(instance.region)].Add(instance.stats);
  }
  std::vector<ErrorStats> out;
  out.reserve(worst.size());
  for (const WorstCopy& region : worst) out.push_back(region.stats());
  return out;
}

}  // namespace

Result<MergedComparison> MergeComparisons(
    const std::vector<const TensorComparison*>& parts) {
  MergedComparison out;
  Places places;
  for (size_t part = 0; part < parts.size(); ++part) {
    for (size_t region = 0; region < parts[part]->regions.size(); ++region) {
      places.try_emplace(parts[part]->regions[region],
                         MergedComparison::Source{part, region});
    }
  }
  if (places.empty()) return out;
  TTRACE_RETURN_IF_ERROR(CheckPlaces(places));
  JoinInstances(parts, places, &out);
  TensorComparison& merged = out.comparison;
  int64_t both = 0;
  int64_t only_candidate = 0;
  const std::vector<ErrorStats> regions = WorstOfEach(merged);
  for (size_t i = 0; i < regions.size(); ++i) {
    merged.total.Merge(regions[i]);
    both += regions[i].count;
    only_candidate += merged.regions[i].local_count() - regions[i].count;
  }
  // Each part knows the whole reference: what it shares with its own regions
  // and what it holds beside them.
  const TensorComparison& any = *parts[out.sources.front().part];
  merged.routed = any.routed;
  if (any.routed) {
    merged.candidate_gap =
        any.routed->candidate *
            ElementsOfAToken(merged.regions.front().global_shape()) -
        both - only_candidate;
    merged.reference_gap = any.reference_gap;
  } else {
    merged.candidate_gap = any.total.count + any.candidate_gap - both;
    merged.reference_gap = only_candidate;
    merged.common_gap = merged.regions.front().global_count() - both -
                        merged.candidate_gap - merged.reference_gap;
  }
  for (const TensorComparison* part : parts) {
    merged.reference_overlap =
        std::max(merged.reference_overlap, part->reference_overlap);
  }
  return out;
}

}  // namespace ttrace
