#include "src/diagnose/scaled_parts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "src/diagnose/constants.h"
#include "src/diagnose/sampled_parts.h"
#include "src/diagnose/shared_factor.h"
#include "src/diagnose/value_view.h"
#include "src/judge/one_factor.h"

namespace ttrace {
namespace {

// Whether all of the tensor may be scaled by alpha, by an estimate of its
// error.
bool IsErrorOfFactor(const ErrorStats& whole, double alpha, double bound) {
  const double error = std::fabs(alpha - 1);
  const double slack = bound * std::fmax(1, std::fabs(alpha));
  return error >= whole.AtLow().rel_err() - slack &&
         error <= whole.AtHigh().rel_err() + slack;
}

// The parts of one tensor, as they are found right or scaled.
class PartFactors {
 public:
  explicit PartFactors(double bound) : bound_(bound) {}

  // False if the part is neither right nor scaled.
  bool Add(const InstanceStats& part) {
    const ErrorStats& stats = part.stats;
    if (stats.nonfinite_differ > 0) return false;
    if (stats.count < kFewestOfPart || !(stats.sum_sq_ref > 0)) {
      return !(stats.sum_sq_err > 0) || stats.count < kFewestOfPart;
    }
    if (part.micro_batch >= 0) by_micro_batch_[part.micro_batch].Merge(stats);
    const double alpha = stats.projection();
    if (!part.ranks.empty()) {
      by_rank_[part.ranks.front()].Merge(stats);
      of_parts_.emplace_back(part.ranks.front(), alpha);
    }
    if (stats.rel_err() <= kSlack * bound_) {
      ++right_;
      right_ranks_.insert(part.ranks.begin(), part.ranks.end());
      return true;
    }
    if (!(std::fabs(alpha) > kStatisticsResolve) ||
        !IsOneFactor(stats, bound_)) {
      return false;
    }
    scaled_.Merge(stats);
    alphas_.push_back(alpha);
    worst_residual_ =
        std::fmax(worst_residual_,
                  stats.beyond_factor() / std::fmax(1, std::fabs(alpha)));
    ranks_.insert(part.ranks.begin(), part.ranks.end());
    if (part.micro_batch >= 0) micro_batches_.insert(part.micro_batch);
    return true;
  }

  // Nothing if no part is scaled.
  std::optional<ScaledParts> Found() const {
    if (alphas_.empty()) return std::nullopt;
    ScaledParts out;
    out.alpha = scaled_.projection();
    out.agree = std::all_of(alphas_.begin(), alphas_.end(), [&](double alpha) {
      return IsSameFactor(alpha, out.alpha, bound_);
    });
    out.worst_residual = worst_residual_;
    out.right = right_;
    out.ranks.assign(ranks_.begin(), ranks_.end());
    out.ranks_differ =
        std::any_of(right_ranks_.begin(), right_ranks_.end(),
                    [&](int rank) { return !ranks_.contains(rank); });
    out.micro_batches.assign(micro_batches_.begin(), micro_batches_.end());
    for (const auto& [micro_batch, stats] : by_micro_batch_) {
      out.of_micro_batch[micro_batch] = stats.projection();
    }
    for (const auto& [rank, stats] : by_rank_) {
      out.of_rank[rank] = stats.projection();
    }
    const bool several = of_parts_.size() > by_rank_.size() ||
                         of_parts_.size() > by_micro_batch_.size();
    out.by_rank =
        several &&
        std::all_of(of_parts_.begin(), of_parts_.end(), [&](const auto& part) {
          return IsSameFactor(part.second, out.of_rank[part.first], bound_);
        });
    return out;
  }

 private:
  double bound_;
  int64_t right_ = 0;
  std::set<int> right_ranks_;
  ErrorStats scaled_;
  std::vector<double> alphas_;  // of scaled parts
  double worst_residual_ = 0;
  std::set<int> ranks_;
  std::set<int> micro_batches_;
  std::map<int, ErrorStats> by_micro_batch_;
  std::map<int, ErrorStats> by_rank_;  // the first of a part
  std::vector<std::pair<int, double>> of_parts_;
};

// The same of parts that are too small to fit a number to: `factor` is what
// other tensors have.
std::optional<ScaledParts> PartsOfFactor(
    const std::vector<InstanceStats>& parts, double bound,
    const SharedFactor& factor) {
  ScaledParts out;
  out.alpha = factor.alpha;
  out.shared_with = factor.tensors;
  const double size = std::fmax(1, std::fabs(factor.alpha));
  std::set<int> ranks;
  std::set<int> right_ranks;
  std::set<int> micro_batches;
  bool any = false;
  for (const InstanceStats& part : parts) {
    const ErrorStats& stats = part.stats;
    if (stats.rel_err() <= kSlack * bound) {
      ++out.right;
      right_ranks.insert(part.ranks.begin(), part.ranks.end());
      continue;
    }
    if (!(stats.sum_sq_ref > 0)) return std::nullopt;
    const double rest = BeyondGivenFactor(stats, factor.alpha) / size;
    // As of a factor that is fitted (one_factor.h): what sums tell.
    if (rest > std::fmax(kSlack * bound, 0.01 * stats.rel_err() / size)) {
      return std::nullopt;
    }
    any = true;
    out.worst_residual = std::fmax(out.worst_residual, rest);
    ranks.insert(part.ranks.begin(), part.ranks.end());
    if (part.micro_batch >= 0) micro_batches.insert(part.micro_batch);
  }
  if (!any) return std::nullopt;
  out.ranks.assign(ranks.begin(), ranks.end());
  out.ranks_differ =
      std::any_of(right_ranks.begin(), right_ranks.end(),
                  [&](int rank) { return !ranks.contains(rank); });
  out.micro_batches.assign(micro_batches.begin(), micro_batches.end());
  return out;
}

bool AllAreSmall(const std::vector<InstanceStats>& parts) {
  return std::all_of(parts.begin(), parts.end(), [](const InstanceStats& part) {
    return part.stats.count < kFewestOfPart;
  });
}

}  // namespace

bool IsSameFactor(double a, double b, double bound) {
  return std::fabs(a / b - 1) <= 2 * std::fmax(bound, kStatisticsResolve);
}

std::optional<ScaledParts> FindScaledParts(const ValueView& view) {
  if (view.leg().stats.nonfinite_differ > 0) return std::nullopt;
  std::vector<InstanceStats> parts = view.evidence().instances;
  if (parts.empty()) parts.push_back({{}, -1, view.leg().stats});
  int64_t sampled = 0;
  if (auto samples = SamplesOfParts(view, kFewestOfPart)) {
    parts = std::move(samples->parts);
    sampled = samples->elements;
  }
  PartFactors factors(view.bound());
  for (const InstanceStats& part : parts) {
    if (!factors.Add(part)) return std::nullopt;
  }
  std::optional<ScaledParts> out = factors.Found();
  if (!out && AllAreSmall(parts)) {
    if (const auto shared = FactorOfOthers(view.evidence())) {
      out = PartsOfFactor(parts, view.bound(), *shared);
    }
  }
  if (!out) return std::nullopt;
  out->sampled = sampled;
  if (sampled > 0 && out->agree && out->right == 0 &&
      !IsErrorOfFactor(view.leg().stats, out->alpha, view.bound())) {
    return std::nullopt;
  }
  return out;
}

}  // namespace ttrace
