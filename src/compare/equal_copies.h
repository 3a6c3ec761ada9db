// Copies of one region that measured alike are one entry: what is kept of a
// comparison does not grow with the number of ranks.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_COMPARE_EQUAL_COPIES_H_
#define TTRACE_SRC_COMPARE_EQUAL_COPIES_H_

#include "src/compare/compare_tensor.h"

namespace ttrace {

// Joins instances of one region and micro-batch whose statistics are equal in
// every bit: the entry has the ranks of all, and counts them
// (InstanceStats::copies). What is joined already may be joined with more: the
// order does not matter.
void JoinEqualCopies(TensorComparison* comparison);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_EQUAL_COPIES_H_
