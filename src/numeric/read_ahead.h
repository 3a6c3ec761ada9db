// Reading ahead by software, of kernels that go through memory once.
//
// What is asked for comes into the second level of cache. Asked for into the
// first, it takes those few buffers that the kernel's own misses wait in, and
// the kernel waits for one to be free (measured: bench/README.md).

#ifndef TTRACE_SRC_NUMERIC_READ_AHEAD_H_
#define TTRACE_SRC_NUMERIC_READ_AHEAD_H_

#include <cstddef>

namespace ttrace {

// Bytes ahead of what is read: the hardware's own reading ahead ends with a
// page of 4 KiB.
inline constexpr size_t kReadAhead = 8192;

// The line of cache that `p` lies in, which need not be anybody's memory.
// Always inlined: g++ 12 takes a function that does nothing else for one
// without effects, and drops calls of it from code for another instruction set.
[[gnu::always_inline]] inline void ReadAhead(const void* p) {
  __builtin_prefetch(p, /*rw=*/0, /*locality=*/2);
}

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_READ_AHEAD_H_
