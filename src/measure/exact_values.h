// Values that no tolerance applies to.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_MEASURE_EXACT_VALUES_H_
#define TTRACE_SRC_MEASURE_EXACT_VALUES_H_

#include "src/align/catalog.h"

namespace ttrace {

// Integers and booleans.
inline bool IsExact(const TensorPieces& pieces) {
  return !Info(pieces.pieces.front().dtype()).floating;
}

inline bool IsAfterStep(Role role) {
  return role == Role::kParamUpdated || role == Role::kOptimState;
}

// Judged exactly, or not against the reference.
inline bool HasNoTolerance(Role role) {
  return role == Role::kData || role == Role::kParam || IsAfterStep(role);
}

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_EXACT_VALUES_H_
