#include "src/measure/padding_gradient.h"

#include <cmath>
#include <limits>

namespace ttrace {

Result<double> GradientOfPadding(const TensorPieces& pieces, double common) {
  TTRACE_ASSIGN_OR_RETURN(const SquareSum all, SumOfSquares(pieces));
  // Both are sums of as many squares, and the common one may be of differences.
  const double rounding = 8 * std::numeric_limits<double>::epsilon() *
                          static_cast<double>(all.count) * all.sum;
  const double padding = all.sum - common;
  if (!(padding > rounding)) return 0.0;
  return std::sqrt(padding / common);
}

}  // namespace ttrace
