#include "src/diagnose/suspect.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/compare/instances.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/value_view.h"

namespace ttrace {
namespace {

double SquaredError(const ValueView& view, const Instance& instance) {
  for (const InstanceStats& known : view.evidence().instances) {
    if (known.micro_batch == instance.micro_batch &&
        known.ranks == instance.ranks.ToVector()) {
      return known.stats.sum_sq_err;
    }
  }
  return 0;
}

// The candidate without copies: of each, the worst is left.
Result<TensorPieces> WorstCopies(const ValueView& view) {
  TTRACE_ASSIGN_OR_RETURN(
      const auto groups,
      GroupInstances(view.candidate(), view.evidence().compare));
  TensorPieces out = view.candidate();
  out.pieces.clear();
  for (const InstanceGroup& group : groups) {
    const auto worst =
        std::max_element(group.instances.begin(), group.instances.end(),
                         [&](const Instance& a, const Instance& b) {
                           return SquaredError(view, a) < SquaredError(view, b);
                         });
    for (const Term& term : worst->terms) out.pieces.push_back(term.record);
  }
  return out;
}

}  // namespace

std::optional<Suspect> FindSuspect(const ValueView& view) {
  auto worst_copies = WorstCopies(view);
  if (!worst_copies.ok()) return std::nullopt;
  auto pair = SamplePair(view.reference(), *worst_copies, kSampledElements,
                         view.evidence().compare);
  if (!pair.ok() || pair->reference.empty()) return std::nullopt;
  size_t worst = 0;
  double most = 0;
  for (size_t i = 0; i < pair->reference.size(); ++i) {
    const double error = std::fabs(pair->candidate[i] - pair->reference[i]);
    if (error > most) {
      most = error;
      worst = i;
    }
  }
  if (!(most > 0)) return std::nullopt;
  Shape place = PlaceInSample(pair->boxes, worst);
  return Suspect{*std::move(worst_copies), *std::move(pair), std::move(place)};
}

}  // namespace ttrace
