// The tokens of one expert in two runs.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_COMPARE_ROUTED_TOKENS_H_
#define TTRACE_SRC_COMPARE_ROUTED_TOKENS_H_

#include <cstdint>
#include <optional>

#include "src/align/catalog.h"
#include "src/compare/compare_tensor.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

// Nothing if rows of neither side are routed. Of `options`, rows apply.
//
// Fails with kIncomparable if those of one side are not, or are of another
// expert; kInvalidArgument if the row map does not fit.
Result<std::optional<RoutedTokens>> JoinTokens(const TensorPieces& reference,
                                               const TensorPieces& candidate,
                                               const CompareOptions& options);

// Of a tensor of `shape` whose first dimension are tokens.
int64_t ElementsOfAToken(const Shape& shape);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_ROUTED_TOKENS_H_
