// Await: waiting for a condition variable without
// std::condition_variable::wait, which GCC 12 gave a symbol version of its own
// (GLIBCXX_3.4.30): a wheel would run with no older libstdc++
// (docs/install.md).

#ifndef TTRACE_SRC_BASE_AWAIT_H_
#define TTRACE_SRC_BASE_AWAIT_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ttrace {

// Returns, with `lock` held, once ready() is true: asked with `lock` held at
// first and after each notification of `changed`. As
// changed.wait(lock, ready).
//
// REQUIRES: `lock` is held.
template <typename Ready>
void Await(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
           Ready ready) {
  // A wait with an end is inline. When it ends is of no account, because
  // another begins.
  while (!changed.wait_for(lock, std::chrono::hours(1), ready)) {
  }
}

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_AWAIT_H_
