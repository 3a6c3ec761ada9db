// SegmentWriter: puts tensors one after the other into numbered files, and
// turns each finished file into a safetensors file.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_SEGMENTS_SEGMENT_WRITER_H_
#define TTRACE_SRC_TRACE_SEGMENTS_SEGMENT_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/trace/file.h"
#include "src/trace/record_fields.h"
#include "src/trace/segments/safetensors_header.h"
#include "ttrace/status.h"

namespace ttrace {

class SegmentWriter {
 public:
  explicit SegmentWriter(std::string rank_folder)
      : rank_folder_(std::move(rank_folder)) {}

  // Makes room for a tensor, in a new segment if this one is full, and returns
  // where it begins. Its bytes follow by Write, all of them before the next
  // Begin. Any failure leaves the segment unusable.
  Result<Extent> Begin(int64_t sequence, DType dtype, const Shape& shape,
                       int64_t bytes);
  Status Write(std::span<const std::byte> bytes);

  // Flushes to the disk what was written.
  Status Sync();
  // Writes the header of the open segment, if there is one, and closes it.
  Status Seal();

 private:
  Status Start();

  std::string rank_folder_;
  File file_;
  SafetensorsHeader header_;
  int next_segment_ = 0;
  int64_t position_ = 0;  // where the next byte goes
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_SEGMENTS_SEGMENT_WRITER_H_
