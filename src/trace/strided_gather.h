// StridedGather: a tensor in memory, as a sequence of contiguous tiles.
//
// A contiguous tensor is one tile, its own memory. Any other is copied into a
// small buffer, a tile at a time, so that memory does not grow with the tensor.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_STRIDED_GATHER_H_
#define TTRACE_SRC_TRACE_STRIDED_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ttrace/layout.h"

namespace ttrace {

class StridedGather {
 public:
  static constexpr int64_t kTileBytes = 1024 * 1024;

  // REQUIRES: strides.size() == shape.size(), itemsize is 1, 2, 4 or 8, and
  // data points to the element at index 0 unless the tensor is empty.
  StridedGather(const std::byte* data, const Shape& shape,
                std::span<const int64_t> strides, int itemsize);

  // The next tile in row-major order; empty at the end. It stays valid until
  // the next call.
  std::span<const std::byte> Next();

 private:
  struct Dim {
    int64_t size;
    int64_t stride;  // in bytes
  };
  void Step();

  const std::byte* data_;
  int itemsize_;
  // Without dimensions of size 1; neighbours that are contiguous to each other
  // are one. The last dimension is copied by the inner loop.
  std::vector<Dim> dims_;
  std::vector<int64_t> index_;  // of all dimensions, the last one included
  int64_t offset_ = 0;          // in bytes, of `index_`
  int64_t left_ = 1;            // elements not yet returned
  bool contiguous_ = false;
  std::vector<std::byte> tile_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_STRIDED_GATHER_H_
