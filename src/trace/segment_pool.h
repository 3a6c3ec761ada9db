// SegmentPool: segments opened on demand, and no more of them at a time than a
// process may have open.
//
// Thread safety: all methods, from many threads.

#ifndef TTRACE_SRC_TRACE_SEGMENT_POOL_H_
#define TTRACE_SRC_TRACE_SEGMENT_POOL_H_

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "src/trace/file.h"
#include "ttrace/status.h"

namespace ttrace {

class SegmentPool {
 public:
  static constexpr size_t kMaxOpen = 64;

  // The file stays open for as long as the caller holds it, even if the pool
  // lets go of it.
  Result<std::shared_ptr<const File>> Get(const std::string& path);

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const File>>;

  std::mutex mutex_;
  std::list<Entry> by_use_;  // the last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_path_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_SEGMENT_POOL_H_
