#include "src/base/for_each.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace ttrace {
namespace {

thread_local bool is_in_for_each = false;

class InForEach {
 public:
  InForEach() : before_(is_in_for_each) { is_in_for_each = true; }
  ~InForEach() { is_in_for_each = before_; }
  InForEach(const InForEach&) = delete;
  InForEach& operator=(const InForEach&) = delete;

 private:
  bool before_;
};

// The error of the least index.
class FirstError {
 public:
  bool IsBefore(size_t i) const { return index_ < i; }

  void Set(size_t i, const Error& error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (index_ <= i) return;
    index_ = i;
    error_ = error;
  }

  Status status() const { return error_ ? Status(*error_) : Status(Done{}); }

 private:
  std::atomic<size_t> index_ = SIZE_MAX;
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

Status ForEach(int threads, size_t count,
               const std::function<Status(size_t)>& work) {
  std::vector<std::optional<Error>> errors(count);
  // More threads than cores are a user's right: without this oneTBB warns.
  std::optional<tbb::global_control> limit;
  if (threads > 0) {
    limit.emplace(tbb::global_control::max_allowed_parallelism,
                  static_cast<size_t>(threads));
  }
  tbb::task_arena arena(threads > 0 ? threads : tbb::task_arena::automatic);
  arena.execute([&] {
    tbb::parallel_for(size_t{0}, count, [&](size_t i) {
      const InForEach inside;
      const Status status = work(i);
      if (!status.ok()) errors[i] = status.error();
    });
  });
  for (const auto& error : errors) {
    if (error) return *error;
  }
  return Done{};
}

int ThreadsForParts() {
  return is_in_for_each ? tbb::this_task_arena::max_concurrency() : 1;
}

Status ForEachPart(size_t count, const std::function<Status(size_t)>& work) {
  if (ThreadsForParts() == 1) {
    for (size_t i = 0; i < count; ++i) TTRACE_RETURN_IF_ERROR(work(i));
    return Done{};
  }
  FirstError error;
  // Waiting for the last part it would else begin another piece of work.
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(size_t{0}, count, [&](size_t i) {
      if (error.IsBefore(i)) return;
      const Status status = work(i);
      if (!status.ok()) error.Set(i, status.error());
    });
  });
  return error.status();
}

}  // namespace ttrace
