#include "src/base/for_each.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <optional>
#include <vector>

namespace ttrace {

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
      const Status status = work(i);
      if (!status.ok()) errors[i] = status.error();
    });
  });
  for (const auto& error : errors) {
    if (error) return *error;
  }
  return Done{};
}

}  // namespace ttrace
