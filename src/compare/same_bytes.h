// Copies whose bytes are equal, by their checksums: nothing has to be compared
// then, or nothing again.
//
// Thread safety: pure functions of const inputs.

#ifndef TTRACE_SRC_COMPARE_SAME_BYTES_H_
#define TTRACE_SRC_COMPARE_SAME_BYTES_H_

#include "src/compare/instances.h"

namespace ttrace {

// Whether each of two instances of one layout is one piece with values, these
// are the same bytes of one dtype, and count alike.
//
// By what the index says of them: whether they are those bytes, IsVerified
// tells.
inline bool SameBytes(const Instance& a, const Instance& b) {
  if (a.terms.size() != 1 || b.terms.size() != 1) return false;
  const Term& x = a.terms.front();
  const Term& y = b.terms.front();
  if (x.weight != y.weight || x.record.dtype() != y.record.dtype() ||
      !x.record.holds_values() || !y.record.holds_values()) {
    return false;
  }
  const Extent one = x.record.extent();
  const Extent other = y.record.extent();
  return one.xxh3 == other.xxh3 && one.bytes == other.bytes;
}

// Whether the bytes of its one piece are those that were written. Where they
// are not, who reads them says why.
// REQUIRES: instance.terms.size() == 1
inline bool IsVerified(const Instance& instance) {
  return instance.trace->Verify(instance.terms.front().record).ok();
}

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_SAME_BYTES_H_
