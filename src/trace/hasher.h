// Hasher: one number from the parts of a value, for tables in memory.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_HASHER_H_
#define TTRACE_SRC_TRACE_HASHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "ttrace/layout.h"

namespace ttrace {

class Hasher {
 public:
  void Add(uint64_t value) {
    // Multiplication carries each bit upwards only: the top comes down again.
    hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15;
    hash_ ^= hash_ >> 32;
  }
  void Add(std::string_view text) {
    Add(uint64_t{std::hash<std::string_view>()(text)});
  }
  void Add(const Shape& shape) {
    Add(uint64_t{shape.size()});
    for (const int64_t size : shape) Add(static_cast<uint64_t>(size));
  }
  size_t Take() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_HASHER_H_
