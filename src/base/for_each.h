// Work of unequal sizes on all threads.

#ifndef TTRACE_SRC_BASE_FOR_EACH_H_
#define TTRACE_SRC_BASE_FOR_EACH_H_

#include <cstddef>
#include <functional>

#include "ttrace/status.h"

namespace ttrace {

// Calls `work(i)` for each i below `count`, on `threads` threads (0: as many as
// cores), and returns the first error in the order of i.
Status ForEach(int threads, size_t count,
               const std::function<Status(size_t)>& work);

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_FOR_EACH_H_
