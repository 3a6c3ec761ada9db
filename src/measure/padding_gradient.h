// What of a gradient lies in padding: in places that one of two runs has alone.
//
// Thread safety: pure, but for records that may be cached.

#ifndef TTRACE_SRC_MEASURE_PADDING_GRADIENT_H_
#define TTRACE_SRC_MEASURE_PADDING_GRADIENT_H_

#include <algorithm>

#include "src/align/catalog.h"
#include "ttrace/status.h"

namespace ttrace {

struct PaddingGradient {
  double candidate = 0;
  double reference = 0;

  double largest() const { return std::max(candidate, reference); }
};

// The norm of a gradient in places that the other run does not have, relative
// to that in places that both have, whose squares sum up to `common`; 0 where
// it is zero but for the rounding of these sums, or not finite. Fails as
// SumOfSquares.
Result<double> GradientOfPadding(const TensorPieces& pieces, double common);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_PADDING_GRADIENT_H_
