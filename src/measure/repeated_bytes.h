// Whether a replay repeated each piece bit by bit, where a look at each piece
// is enough to say so.
//
// Thread safety: pure functions of const inputs.

#ifndef TTRACE_SRC_MEASURE_REPEATED_BYTES_H_
#define TTRACE_SRC_MEASURE_REPEATED_BYTES_H_

#include "src/align/catalog.h"

namespace ttrace {

// Its bytes were written once. Nothing has to be read then.
bool IsSameBytes(const TensorPieces& real, const TensorPieces& replay);

// They were written twice, and are equal by their checksums, which were looked
// at: pieces of the two need not be sorted into regions to find that nothing
// differs. False if there is more to it: terms of sums, pieces without a place,
// bytes that are not those that were written.
bool HasEqualBytes(const TensorPieces& real, const TensorPieces& replay);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_REPEATED_BYTES_H_
