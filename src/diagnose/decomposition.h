// Which terms a value is the sum of: least squares against recorded terms.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_DECOMPOSITION_H_
#define TTRACE_SRC_DIAGNOSE_DECOMPOSITION_H_

#include <optional>
#include <vector>

namespace ttrace {

struct Decomposition {
  std::vector<double> weights;  // one a term
  // How far each weight may be from the true one if every vector is known to a
  // relative error of `noise`: by the rows of the pseudo-inverse, in the worst
  // case, so that no assumption about that error is made.
  std::vector<double> uncertainty;
  double residual = 0;  // ||target - sum|| / ||target||

  double worst_uncertainty() const;
  // All weights are within their uncertainty (or 1e-3) of a whole number, and
  // no uncertainty exceeds a quarter: 0, 1 and 2 are told apart.
  bool whole() const;
};

// Nothing if there are no terms, the vectors differ in length, any value is not
// finite, the target is zero, or the terms are linearly dependent within
// `noise`.
std::optional<Decomposition> Decompose(
    const std::vector<std::vector<double>>& terms,
    const std::vector<double>& target, double noise);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_DECOMPOSITION_H_
