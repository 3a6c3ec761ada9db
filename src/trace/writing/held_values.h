// HeldValues: bytes that are set aside for a while, in the order in which they
// came.
//
// The first few stay in memory; the rest goes to a file without a name, so that
// memory does not grow with what is set aside. The file is written again and
// again.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_WRITING_HELD_VALUES_H_
#define TTRACE_SRC_TRACE_WRITING_HELD_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/file.h"
#include "ttrace/status.h"

namespace ttrace {

class HeldValues {
 public:
  // The file is made in `folder` when it is needed. `in_memory`: bytes.
  explicit HeldValues(std::string folder, size_t in_memory = size_t{1} << 22)
      : folder_(std::move(folder)), in_memory_(in_memory) {}

  // Where the next bytes will lie.
  int64_t end() const { return spilled_ + static_cast<int64_t>(tail_.size()); }
  Status Add(std::span<const std::byte> bytes);
  // REQUIRES: [offset, + size) was added.
  Status Read(int64_t offset, std::span<std::byte> out) const;
  Status Replace(int64_t offset, std::span<const std::byte> bytes);
  // Nothing is set aside any more.
  void Clear();

 private:
  std::string folder_;
  size_t in_memory_;
  File file_;
  int64_t spilled_ = 0;  // bytes in the file: what comes before `tail_`
  std::vector<std::byte> tail_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITING_HELD_VALUES_H_
