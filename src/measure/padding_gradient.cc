#include "src/measure/padding_gradient.h"

#include <cmath>

namespace ttrace {
namespace {

// Comparisons sum squares in lanes of fp32, which are off by 1e-7 of a sum, and
// what they know of the candidate's they know as a difference.
constexpr double kRounding = 1e-5;

}  // namespace

Result<double> GradientOfPadding(const TensorPieces& pieces, double common) {
  TTRACE_ASSIGN_OR_RETURN(const SquareSum all, SumOfSquares(pieces));
  const double padding = all.sum - common;
  if (!(padding > kRounding * all.sum)) return 0.0;
  return std::sqrt(padding / common);
}

}  // namespace ttrace
