// SpanCopy: the memory of a strided tensor, as rows that one copy of a device's
// engine moves.
//
// Engines copy equal runs of bytes at an equal pitch, not strides. What is
// copied is all that lies between a tensor's first and its last byte, less the
// largest gaps that repeat: a tensor that is contiguous, or is so with its
// dimensions in another order, is one row; a slice of a wider tensor is one row
// for each of the wider one's. Whoever reads the copy uses `strides`.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_TRACE_DEVICE_SPAN_COPY_H_
#define TTRACE_SRC_TRACE_DEVICE_SPAN_COPY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ttrace/layout.h"

namespace ttrace {

// All in bytes, but for `strides`.
struct SpanCopy {
  std::ptrdiff_t first = 0;  // of what is copied, from the element at index 0
  size_t width = 0;          // of a row
  size_t pitch = 0;          // from one row to the next
  size_t height = 0;         // rows
  // In the copy, where rows follow each other without a gap.
  size_t origin = 0;             // of the element at index 0
  std::vector<int64_t> strides;  // in elements, one for each dimension

  size_t bytes() const { return width * height; }
};

// What an engine takes at most for a pitch (CU_DEVICE_ATTRIBUTE_MAX_PITCH of
// every device so far).
inline constexpr size_t kLargestPitch = (size_t{1} << 31) - 1;

// Of a tensor with at least one element. Nothing: it spans more bytes than an
// address has.
// REQUIRES: strides.size() == shape.size(), sizes and `itemsize` are positive
std::optional<SpanCopy> PlanSpanCopy(const Shape& shape,
                                     std::span<const int64_t> strides,
                                     int itemsize);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_DEVICE_SPAN_COPY_H_
