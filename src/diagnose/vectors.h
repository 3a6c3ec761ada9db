// Sums over values of equal length.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_VECTORS_H_
#define TTRACE_SRC_DIAGNOSE_VECTORS_H_

#include <cstddef>
#include <span>

namespace ttrace {

// REQUIRES, of all: a.size() == b.size()
inline double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline double SquaredNorm(std::span<const double> a) { return Dot(a, a); }

inline double SquaredDistance(std::span<const double> a,
                              std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_VECTORS_H_
