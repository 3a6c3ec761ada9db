#include "src/trace/segments/segment_pool.h"

#include <sys/resource.h>

#include <algorithm>

namespace ttrace {

size_t SegmentPool::MaxOpen() {
  constexpr rlim_t kLeast = 64;
  constexpr rlim_t kMost = 4096;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kLeast;
  return std::clamp(limit.rlim_cur / 4, kLeast, kMost);
}

void RaiseOpenFileLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  // What is beyond need is not asked for: some systems give it, and then other
  // code loops over all descriptors.
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, 16'384);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<std::shared_ptr<const File>> SegmentPool::Get(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_path_.find(path);
  if (found != by_path_.end()) {
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return by_use_.front().second;
  }
  TTRACE_ASSIGN_OR_RETURN(File file, File::Open(path));
  auto shared = std::make_shared<const File>(std::move(file));
  by_use_.emplace_front(path, shared);
  by_path_[path] = by_use_.begin();
  if (by_use_.size() > max_open_) {
    by_path_.erase(by_use_.back().first);
    by_use_.pop_back();
  }
  return shared;
}

}  // namespace ttrace
