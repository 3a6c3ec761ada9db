#include "src/diagnose/decomposition.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "src/diagnose/constants.h"
#include "src/diagnose/vectors.h"

namespace ttrace {
namespace {

// Gauss-Jordan with the largest pivot; the matrix is small, symmetric and
// scaled to a unit diagonal. False if a pivot is below `smallest`.
bool Invert(std::vector<std::vector<double>>* matrix, double smallest) {
  std::vector<std::vector<double>>& a = *matrix;
  const size_t n = a.size();
  std::vector<std::vector<double>> inverse(n, std::vector<double>(n, 0));
  for (size_t i = 0; i < n; ++i) inverse[i][i] = 1;
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k; i < n; ++i) {
      if (std::fabs(a[i][k]) > std::fabs(a[pivot][k])) pivot = i;
    }
    if (!(std::fabs(a[pivot][k]) > smallest)) return false;
    std::swap(a[k], a[pivot]);
    std::swap(inverse[k], inverse[pivot]);
    const double scale = 1 / a[k][k];
    for (size_t j = 0; j < n; ++j) {
      a[k][j] *= scale;
      inverse[k][j] *= scale;
    }
    for (size_t i = 0; i < n; ++i) {
      if (i == k) continue;
      const double factor = a[i][k];
      for (size_t j = 0; j < n; ++j) {
        a[i][j] -= factor * a[k][j];
        inverse[i][j] -= factor * inverse[k][j];
      }
    }
  }
  a = std::move(inverse);
  return true;
}

}  // namespace

double Decomposition::worst_uncertainty() const {
  return *std::max_element(uncertainty.begin(), uncertainty.end());
}

bool Decomposition::whole() const {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(uncertainty[i] <= kMostUncertain)) return false;
    if (std::fabs(weights[i] - std::round(weights[i])) >
        std::max(kWholeWithin, uncertainty[i])) {
      return false;
    }
  }
  return true;
}

std::optional<Decomposition> Decompose(
    const std::vector<std::vector<double>>& terms,
    const std::vector<double>& target, double noise) {
  const size_t n = terms.size();
  const double target_sq = Dot(target, target);
  if (n == 0 || target.size() < n || !(target_sq > 0) ||
      !std::isfinite(target_sq)) {
    return std::nullopt;
  }
  std::vector<double> norm(n);
  for (size_t i = 0; i < n; ++i) {
    if (terms[i].size() != target.size()) return std::nullopt;
    norm[i] = std::sqrt(Dot(terms[i], terms[i]));
    if (!(norm[i] > 0) || !std::isfinite(norm[i])) return std::nullopt;
  }
  std::vector<std::vector<double>> gram(n, std::vector<double>(n));
  std::vector<double> right(n);
  for (size_t i = 0; i < n; ++i) {
    right[i] = Dot(terms[i], target) / norm[i];
    for (size_t j = 0; j < n; ++j) {
      gram[i][j] = Dot(terms[i], terms[j]) / (norm[i] * norm[j]);
    }
  }
  // A direction in which the terms differ by less than their noise tells
  // nothing; 1e-12 is what doubles resolve.
  if (!Invert(&gram, std::max(1e-12, noise * noise))) return std::nullopt;

  Decomposition out;
  double size = std::sqrt(target_sq);
  for (size_t i = 0; i < n; ++i) {
    const double weight = Dot(gram[i], right) / norm[i];
    out.weights.push_back(weight);
    size += std::fabs(weight) * norm[i];
  }
  double rest_sq = 0;
  for (size_t e = 0; e < target.size(); ++e) {
    double rest = target[e];
    for (size_t i = 0; i < n; ++i) rest -= out.weights[i] * terms[i][e];
    rest_sq += rest * rest;
  }
  out.residual = std::sqrt(rest_sq / target_sq);
  const double error = std::max(noise * size, std::sqrt(rest_sq));
  for (size_t i = 0; i < n; ++i) {
    out.uncertainty.push_back(error * std::sqrt(std::fmax(0, gram[i][i])) /
                              norm[i]);
  }
  return out;
}

}  // namespace ttrace
