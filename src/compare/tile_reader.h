// Reads one instance's values of a tile: its single piece's bytes as they are,
// or the sum of its terms as doubles. Bytes that are cached are not copied.

#ifndef TTRACE_SRC_COMPARE_TILE_READER_H_
#define TTRACE_SRC_COMPARE_TILE_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/compare/compare_kernel.h"
#include "src/compare/instances.h"
#include "src/compare/record_cache.h"
#include "src/compare/tile.h"
#include "ttrace/status.h"

namespace ttrace {

// Memory that only grows; its content is never kept.
class ScratchBuffer {
 public:
  std::byte* Reserve(size_t bytes) {
    if (bytes > capacity_) {
      data_.reset(new std::byte[bytes]);
      capacity_ = bytes;
    }
    return data_.get();
  }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t capacity_ = 0;
};

// A strided block of an instance's local tensor.
struct LocalBlock {
  int64_t begin = 0;  // elements
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // elements, falling; the last is 1

  int64_t count() const;
  int64_t span() const;  // from the first element to behind the last
};

// Where a tile lies in the local tensors of its two layouts.
LocalBlock BlockInA(const Tile& tile);
LocalBlock BlockInB(const Tile& tile);

// Values in memory, valid until the reader's next call. Element (i0, i1, ...)
// is at data[i0 * strides[0] + i1 * strides[1] + ...] elements of `dtype`, and
// counts as itself times `scale`.
struct BlockView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  double scale = 1;
  std::vector<int64_t> strides;
};

// Not thread-safe: one per thread and side.
class TileReader {
 public:
  // `cached`: of each term, or empty.
  Result<BlockView> Read(const Instance& instance, const LocalBlock& block,
                         std::span<CachedRecord* const> cached = {});

 private:
  Status ReadPiece(const Trace& trace, const Record& record,
                   const LocalBlock& block, const CachedRecord* cached,
                   BlockView* view);

  ScratchBuffer bytes_;
  ScratchBuffer sum_;
};

// Walks the rows of a block: visit(offset of the row in each of two stride
// sets). The last axis is the row itself and is not walked.
template <class Visit>
void ForEachRow(const std::vector<int64_t>& sizes,
                const std::vector<int64_t>& a_strides,
                const std::vector<int64_t>& b_strides, const Visit& visit) {
  std::vector<int64_t> at(sizes.size(), 0);
  int64_t a = 0;
  int64_t b = 0;
  for (;;) {
    visit(a, b);
    size_t d = sizes.size() - 1;
    for (;;) {
      if (d == 0) return;
      --d;
      a += a_strides[d];
      b += b_strides[d];
      if (++at[d] < sizes[d]) break;
      a -= at[d] * a_strides[d];
      b -= at[d] * b_strides[d];
      at[d] = 0;
    }
  }
}

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_TILE_READER_H_
