// OfferedParts: parts of one piece of work, which whoever has nothing else to
// do takes up.
//
// Thread safety: Work from any number of threads.

#ifndef TTRACE_SRC_TRACE_WRITING_OFFERED_PARTS_H_
#define TTRACE_SRC_TRACE_WRITING_OFFERED_PARTS_H_

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>

namespace ttrace {

class OfferedParts {
 public:
  // `part` outlives this.
  OfferedParts(size_t count, const std::function<void(size_t)>& part)
      : count_(count), part_(part) {}

  bool all_taken() const { return next_ >= count_; }

  // Does parts until all are taken. What one of them throws ends all.
  void Work() noexcept {
    for (size_t i = next_++; i < count_; i = next_++) {
      try {
        part_(i);
      } catch (...) {
        next_ = count_;
        if (!failed_.exchange(true)) thrown_ = std::current_exception();
      }
    }
  }

  // REQUIRES: no thread is in Work
  void Rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  const size_t count_;
  const std::function<void(size_t)>& part_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr thrown_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITING_OFFERED_PARTS_H_
