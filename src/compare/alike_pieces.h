// Whether each rank holds the same bits in two runs that cut a tensor alike: no
// values are merged, so that no two terms hide in their sum, no copy behind
// another, and nothing in a conversion.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_COMPARE_ALIKE_PIECES_H_
#define TTRACE_SRC_COMPARE_ALIKE_PIECES_H_

#include <vector>

#include "src/align/catalog.h"
#include "ttrace/status.h"

namespace ttrace {

// Whether both are made of the same pieces: ranks, micro-batches, layouts,
// placements and scales.
bool AreCutAlike(const TensorPieces& a, const TensorPieces& b);

// The ranks whose pieces differ in a bit or in their dtype, sorted, each once.
// Of what only one side kept values, these are digested. Fails as ReadSummary
// and Trace::Read.
// REQUIRES: AreCutAlike.
Result<std::vector<int>> RanksOfOtherBits(const TensorPieces& reference,
                                          const TensorPieces& candidate);

// Whether a piece is a term of a sum, or counts by a factor: of what such
// pieces make, their digests tell nothing unless they are the same pieces.
bool HasTermsOrFactors(const TensorPieces& pieces);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_ALIKE_PIECES_H_
