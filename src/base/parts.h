// Parts of one piece of work.
//
// Thread safety: what is done by parts allows any order and several threads.

#ifndef TTRACE_SRC_BASE_PARTS_H_
#define TTRACE_SRC_BASE_PARTS_H_

#include <cstddef>
#include <functional>

namespace ttrace {

// Calls part(i) for each i below `count`, and returns when all are done.
using DoParts =
    std::function<void(size_t count, const std::function<void(size_t)>& part)>;

inline void DoInTurn(size_t count, const std::function<void(size_t)>& part) {
  for (size_t i = 0; i < count; ++i) part(i);
}

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_PARTS_H_
