#include "src/trace/segment_pool.h"

namespace ttrace {

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
  if (by_use_.size() > kMaxOpen) {
    by_path_.erase(by_use_.back().first);
    by_use_.pop_back();
  }
  return shared;
}

}  // namespace ttrace
