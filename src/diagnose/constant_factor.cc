// K: the candidate is alpha times the reference, and alpha is no noise.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/diagnose/diagnose.h"

namespace ttrace {
namespace {

struct Factor {
  double value;
  std::string name;
  int terms;      // how many sizes it is made of: fewer is simpler
  bool expected;  // made of dimensions over which the value is reduced
};

// All products of powers -1, 0, 1 of the mesh sizes and the micro-batch count.
std::vector<Factor> TopologyFactors(const Evidence& evidence) {
  std::vector<std::pair<std::string, int>> sizes;
  for (const MeshDim& dim : evidence.candidate_mesh->dims) {
    if (dim.size > 1) sizes.emplace_back(dim.name, dim.size);
  }
  if (evidence.micro_batches > 1) {
    sizes.emplace_back("micro-batches", evidence.micro_batches);
  }
  const auto& reduced_over = evidence.candidate->pieces.front()->reduced_over;
  std::vector<Factor> factors = {{1.0, "", 0, true}};
  for (const auto& [name, size] : sizes) {
    const bool expected = std::find(reduced_over.begin(), reduced_over.end(),
                                    name) != reduced_over.end();
    const size_t before = factors.size();
    for (size_t i = 0; i < before; ++i) {
      const Factor base = factors[i];
      const std::string word = fmt::format("{} = {}", name, size);
      factors.push_back({base.value * size,
                         base.name.empty() ? word : base.name + " x " + word,
                         base.terms + 1, base.expected && expected});
      factors.push_back({base.value / size,
                         base.name.empty() ? "1 / (" + word + ")"
                                           : base.name + " / (" + word + ")",
                         base.terms + 1, base.expected && expected});
    }
  }
  factors.erase(factors.begin());
  std::stable_sort(factors.begin(), factors.end(),
                   [](const Factor& a, const Factor& b) {
                     return std::pair(!a.expected, a.terms) <
                            std::pair(!b.expected, b.terms);
                   });
  return factors;
}

}  // namespace

std::optional<Diagnosis> ConstantFactor(const Evidence& evidence) {
  if (evidence.leg == nullptr) return std::nullopt;
  const ErrorStats& stats = evidence.leg->stats;
  // Few elements are always close to a multiple: one element is exactly one.
  if (stats.count < 8 || !(stats.sum_sq_ref > 0) || !(stats.sum_sq_err > 0)) {
    return std::nullopt;
  }
  const double alpha = stats.projection();
  const double noise = evidence.leg->bound;
  // cos^2 of the angle between the error and the reference: the share of the
  // error that a factor explains. Unlike the residual it does not cancel, so
  // the fp32 lane sums it comes from (relative error 1e-7) are good enough.
  const double explained = stats.sum_err_ref * stats.sum_err_ref /
                           (stats.sum_sq_err * stats.sum_sq_ref);
  constexpr double kAllOfIt = 0.995;
  if (!(std::fabs(alpha - 1) > noise) || !(explained >= kAllOfIt)) {
    return std::nullopt;
  }
  Diagnosis out{"K", "", alpha};
  out.evidence = fmt::format(
      "it is {:.4g} x the reference (the factor explains {:.4g} % of the "
      "error)",
      alpha, 100 * std::fmin(1, explained));
  std::string equals;
  for (const Factor& factor : TopologyFactors(evidence)) {
    // A factor is a ratio of small integers: 1 % tells them apart.
    if (std::fabs(alpha / factor.value - 1) >
        std::fmax(1e-4, std::fmin(0.01, 10 * noise))) {
      continue;
    }
    equals = factor.name;
    break;
  }
  if (!equals.empty()) out.evidence += ", and the factor equals " + equals;
  return out;
}

}  // namespace ttrace
