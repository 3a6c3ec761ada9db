#include "src/diagnose/sampled_parts.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "src/compare/instances.h"
#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/value_view.h"

namespace ttrace {

std::optional<SampledParts> SamplesOfParts(const ValueView& view,
                                           int64_t fewest) {
  const TensorPieces& candidate = view.candidate();
  const Shape shape = view.reference().global_shape();
  if (view.leg().fidelity == Fidelity::kValues ||
      (GivesValues(view.reference()) && GivesValues(candidate)) ||
      candidate.global_shape() != shape) {
    return std::nullopt;
  }
  const auto boxes =
      PlanKept(shape, kSamplePlaces, {&view.reference(), &candidate});
  if (!boxes.ok()) return std::nullopt;
  const SampleGrid grid(shape);
  const auto reference = ReadKept(view.reference(), *boxes);
  const auto groups = GroupInstances(candidate, view.evidence().compare);
  if (!reference.ok() || !groups.ok()) return std::nullopt;
  SampledParts out;
  bool small = false;
  out.elements = static_cast<int64_t>(boxes->size());
  for (const InstanceGroup& group : *groups) {
    if (group.layout.local_count() == 0) continue;
    for (const Instance& instance : group.instances) {
      TensorPieces own = candidate;
      own.pieces.clear();
      for (const Term& term : instance.terms) own.pieces.push_back(term.record);
      const auto values = ReadKept(own, *boxes, view.evidence().compare);
      if (!values.ok()) return std::nullopt;
      InstanceStats part{instance.ranks.ToVector(), instance.micro_batch, {}};
      for (const SampleGrid::Held& held : grid.HeldBy(
               group.layout, RowMajorStrides(group.layout.local_shape()))) {
        const auto place = static_cast<size_t>(held.place);
        const double r = (*reference)[place];
        const double error = (*values)[place] - r;
        if (!std::isfinite(r) || !std::isfinite(error)) return std::nullopt;
        ++part.stats.count;
        part.stats.sum_sq_err += error * error;
        part.stats.sum_err_ref += error * r;
        part.stats.sum_sq_ref += r * r;
      }
      small = small || part.stats.count < fewest || part.stats.sum_sq_ref == 0;
      out.parts.push_back(std::move(part));
    }
  }
  if (small) {
    InstanceStats all;
    for (const InstanceStats& part : out.parts) {
      all.ranks.insert(all.ranks.end(), part.ranks.begin(), part.ranks.end());
      all.stats.Merge(part.stats);
    }
    out.parts = {std::move(all)};
  }
  if (out.parts.empty() || out.parts.front().stats.count < fewest) {
    return std::nullopt;
  }
  return out;
}

}  // namespace ttrace
