// A local tensor as runs of elements that are consecutive in the global one.
//
// Thread safety: pure functions of their arguments.

#ifndef TTRACE_SRC_NUMERIC_LAYOUT_RUNS_H_
#define TTRACE_SRC_NUMERIC_LAYOUT_RUNS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "ttrace/dtype.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

// Where the elements of a rank's piece lie: element (i0, i1, ...) of the local
// tensor at data + (i0 * strides[0] + i1 * strides[1] + ...) elements of
// `dtype`, and `layout` says which element of the global tensor it is.
struct PlacedTensor {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::span<const int64_t> strides;  // elements, of any sign
  const Layout& layout;
};

// `count` elements from `at` on, `stride` elements of the local tensor apart;
// the first has the row-major index `logical` in the global tensor.
struct LocalRun {
  uint64_t logical = 0;
  int64_t at = 0;
  int64_t count = 0;
  int64_t stride = 1;
};

// Each element is in one run. Trailing dimensions that are whole, and lie one
// behind the other, are one.
// REQUIRES: a stride for each dimension.
void ForEachRun(const Layout& layout, std::span<const int64_t> strides,
                const std::function<void(const LocalRun&)>& visit);

// Runs of elements back to back, gathered a few KiB at a time where they are
// not. Fails with kInvalidArgument unless there is a stride for each dimension.
Status ForEachPackedRun(
    const PlacedTensor& tensor,
    const std::function<void(uint64_t logical, const std::byte* elements,
                             size_t count)>& visit);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_LAYOUT_RUNS_H_
