// Masks that say which places of a row are padding.
//
// Thread safety: pure, but for records that may be cached.

#ifndef TTRACE_SRC_EXPERIMENT_MASK_OF_LENGTHS_H_
#define TTRACE_SRC_EXPERIMENT_MASK_OF_LENGTHS_H_

#include "src/align/catalog.h"

namespace ttrace {

// Whether a tensor of integers or booleans [rows, places] holds in each row one
// value up to some place and one value from there on. No random numbers do:
// where two runs have other ones for the same rows, one of them masks wrongly.
// False where it cannot be read.
bool IsMaskOfLengths(const TensorPieces& pieces);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_MASK_OF_LENGTHS_H_
