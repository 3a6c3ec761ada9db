#include "src/diagnose/scaled_parts.h"

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "src/diagnose/sampled_parts.h"
#include "src/judge/one_factor.h"

namespace ttrace {
namespace {

constexpr int64_t kFewest = 8;

// Whether all of the tensor may be scaled by alpha, by an estimate of its
// error.
bool IsErrorOfFactor(const ErrorStats& whole, double alpha, double bound) {
  const double error = std::fabs(alpha - 1);
  const double slack = bound * std::fmax(1, std::fabs(alpha));
  return error >= whole.AtLow().rel_err() - slack &&
         error <= whole.AtHigh().rel_err() + slack;
}

}  // namespace

std::optional<ScaledParts> FindScaledParts(const Evidence& evidence) {
  const double bound = evidence.leg->bound;
  std::vector<InstanceStats> parts = evidence.instances;
  if (parts.empty()) parts.push_back({{}, -1, evidence.leg->stats});

  ScaledParts out;
  if (evidence.leg->stats.nonfinite_differ > 0) return std::nullopt;
  if (auto samples = SamplesOfParts(evidence, kFewest)) {
    parts = std::move(samples->parts);
    out.sampled = samples->elements;
  }
  ErrorStats scaled;
  std::set<int> ranks;
  std::set<int> right_ranks;
  std::set<int> micro_batches;
  std::vector<double> alphas;
  std::map<int, ErrorStats> by_micro_batch;
  std::map<int, ErrorStats> by_rank;
  std::vector<std::pair<int, double>> of_parts;
  for (const InstanceStats& part : parts) {
    const ErrorStats& stats = part.stats;
    if (stats.nonfinite_differ > 0) return std::nullopt;
    if (stats.count < kFewest || !(stats.sum_sq_ref > 0)) {
      if (stats.sum_sq_err > 0 && stats.count >= kFewest) return std::nullopt;
      continue;
    }
    if (part.micro_batch >= 0) by_micro_batch[part.micro_batch].Merge(stats);
    const double alpha = stats.projection();
    if (!part.ranks.empty()) {
      by_rank[part.ranks.front()].Merge(stats);
      of_parts.emplace_back(part.ranks.front(), alpha);
    }
    if (stats.rel_err() <= 4 * bound) {
      ++out.right;
      right_ranks.insert(part.ranks.begin(), part.ranks.end());
      continue;
    }
    if (!(std::fabs(alpha) > 1e-6) || !IsOneFactor(stats, bound)) {
      return std::nullopt;
    }
    scaled.Merge(stats);
    alphas.push_back(alpha);
    out.worst_residual =
        std::fmax(out.worst_residual,
                  stats.beyond_factor() / std::fmax(1, std::fabs(alpha)));
    ranks.insert(part.ranks.begin(), part.ranks.end());
    if (part.micro_batch >= 0) micro_batches.insert(part.micro_batch);
  }
  if (alphas.empty()) return std::nullopt;
  out.alpha = scaled.projection();
  for (const double alpha : alphas) {
    out.agree = out.agree &&
                std::fabs(alpha / out.alpha - 1) <= 2 * std::fmax(bound, 1e-6);
  }
  if (out.sampled > 0 && out.agree && out.right == 0 &&
      !IsErrorOfFactor(evidence.leg->stats, out.alpha, bound)) {
    return std::nullopt;
  }
  for (const int rank : right_ranks) {
    out.ranks_differ = out.ranks_differ || !ranks.contains(rank);
  }
  for (const auto& [micro_batch, stats] : by_micro_batch) {
    out.of_micro_batch[micro_batch] = stats.projection();
  }
  for (const auto& [rank, stats] : by_rank) {
    out.of_rank[rank] = stats.projection();
  }
  out.by_rank = of_parts.size() > by_rank.size() ||
                of_parts.size() > by_micro_batch.size();
  for (const auto& [rank, alpha] : of_parts) {
    out.by_rank = out.by_rank && std::fabs(alpha / out.of_rank[rank] - 1) <=
                                     2 * std::fmax(bound, 1e-6);
  }
  out.ranks.assign(ranks.begin(), ranks.end());
  out.micro_batches.assign(micro_batches.begin(), micro_batches.end());
  return out;
}

}  // namespace ttrace
