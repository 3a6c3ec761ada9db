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
  int terms;         // how many sizes it is made of: fewer is simpler
  bool expected;     // made of dimensions over which the value is reduced
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
      factors.push_back(
          {base.value / size,
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
  // A multiple of the reference has a residual of noise size. Few elements are
  // always close to a multiple: one element is exactly one.
  if (stats.count < 8 || stats.sum_sq_ref == 0) return std::nullopt;
  const double alpha = stats.projection();
  const double residual = stats.residual();
  const double noise = evidence.leg->bound;
  if (!(std::fabs(alpha - 1) > noise) || !(residual <= noise)) {
    return std::nullopt;
  }
  Diagnosis out{"K", "", alpha};
  out.evidence = fmt::format(
      "it is {:.4g} x the reference (what remains after removing the factor is "
      "{:.1e} of it, noise {:.1e})",
      alpha, residual, noise);
  std::string equals;
  for (const Factor& factor : TopologyFactors(evidence)) {
    if (std::fabs(alpha / factor.value - 1) > noise) continue;
    equals = factor.name;
    break;
  }
  if (!equals.empty()) out.evidence += ": the factor equals " + equals;
  return out;
}

}  // namespace ttrace
