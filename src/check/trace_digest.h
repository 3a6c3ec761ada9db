// What tells whether two processes looked at the same traces.

#ifndef TTRACE_SRC_CHECK_TRACE_DIGEST_H_
#define TTRACE_SRC_CHECK_TRACE_DIGEST_H_

#include <cstdint>

#include "src/experiment/side.h"

namespace ttrace {

// Of all that the indexes of a side hold, wherever its folders lie: which run
// it is, every record with the checksum of its bytes, and every note. Reads no
// tensor. Never 0.
uint64_t DigestOf(const Side& side);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_TRACE_DIGEST_H_
