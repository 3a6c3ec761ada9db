// SegmentPool: segments opened on demand, and no more of them at a time than a
// process may have open.
//
// Thread safety: all methods, from many threads.

#ifndef TTRACE_SRC_TRACE_SEGMENTS_SEGMENT_POOL_H_
#define TTRACE_SRC_TRACE_SEGMENTS_SEGMENT_POOL_H_

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
  SegmentPool() : max_open_(MaxOpen()) {}

  // How many files a pool keeps open: a quarter of what this process may have,
  // because there are two sides and other files. Opening one again for every
  // record, where there are more ranks than this, costs more than reading it.
  static size_t MaxOpen();

  // The file stays open for as long as the caller holds it, even if the pool
  // lets go of it.
  Result<std::shared_ptr<const File>> Get(const std::string& path);

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const File>>;

  const size_t max_open_;
  std::mutex mutex_;
  std::list<Entry> by_use_;  // the last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_path_;
};

// Lets this process have as many files open as the system allows. For programs
// that start no others afterwards: those would inherit it.
void RaiseOpenFileLimit();

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_SEGMENTS_SEGMENT_POOL_H_
