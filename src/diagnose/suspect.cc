#include "src/diagnose/suspect.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/compare/instances.h"
#include "src/compare/summaries/kept_sample.h"

namespace ttrace {
namespace {

constexpr int64_t kSampled = 1 << 18;

double SquaredError(const Evidence& evidence, const Instance& instance) {
  for (const InstanceStats& known : evidence.instances) {
    if (known.micro_batch == instance.micro_batch &&
        known.ranks == instance.ranks.ToVector()) {
      return known.stats.sum_sq_err;
    }
  }
  return 0;
}

// The candidate without copies: of each, the worst is left.
Result<TensorPieces> WorstCopies(const Evidence& evidence) {
  TTRACE_ASSIGN_OR_RETURN(
      const auto groups, GroupInstances(*evidence.candidate, evidence.compare));
  TensorPieces out = *evidence.candidate;
  out.pieces.clear();
  for (const InstanceGroup& group : groups) {
    const auto worst = std::max_element(
        group.instances.begin(), group.instances.end(),
        [&](const Instance& a, const Instance& b) {
          return SquaredError(evidence, a) < SquaredError(evidence, b);
        });
    for (const Term& term : worst->terms) out.pieces.push_back(term.record);
  }
  return out;
}

}  // namespace

std::optional<Suspect> FindSuspect(const Evidence& evidence) {
  if (evidence.leg == nullptr || evidence.reference == nullptr ||
      evidence.candidate == nullptr) {
    return std::nullopt;
  }
  auto worst_copies = WorstCopies(evidence);
  if (!worst_copies.ok()) return std::nullopt;
  const auto pair = SamplePair(*evidence.reference, *worst_copies, kSampled,
                               evidence.compare);
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
  return Suspect{*std::move(worst_copies), PlaceInSample(pair->boxes, worst)};
}

}  // namespace ttrace
