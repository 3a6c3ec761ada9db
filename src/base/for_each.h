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

// The same inside the work of a ForEach, on the threads of that: parts of one
// large piece of work, which others that are done with theirs take up. The
// caller does nothing but these meanwhile, so that it may hold what it needs
// for one piece of work only.
//
// Elsewhere on the calling thread alone: whoever asked for no threads, as a
// training process that records, gets none. Work after the first error may be
// left out.
Status ForEachPart(size_t count, const std::function<Status(size_t)>& work);

// How many threads ForEachPart would use here.
int ThreadsForParts();

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_FOR_EACH_H_
