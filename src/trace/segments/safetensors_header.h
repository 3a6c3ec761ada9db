// The header of a safetensors file: 8 bytes of little-endian length, then a
// JSON object that maps tensor names to dtype, shape and place, padded with
// spaces.
//
// We write the strict form that the safetensors package checks: entries in the
// order of their bytes, without gaps. Our names are the records' sequence
// numbers, and nothing but our own index gives them a meaning.

#ifndef TTRACE_SRC_TRACE_SEGMENTS_SAFETENSORS_HEADER_H_
#define TTRACE_SRC_TRACE_SEGMENTS_SAFETENSORS_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ttrace/dtype.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

struct SafetensorsEntry {
  int64_t sequence = 0;  // the tensor's name, in decimal
  DType dtype = DType::kF32;
  Shape shape;
  int64_t begin = 0;  // from the end of the header
  int64_t end = 0;
  bool operator==(const SafetensorsEntry&) const = default;
};

class SafetensorsHeader {
 public:
  // Adds an entry unless the whole header would become longer than
  // kSegmentHeaderBytes. Returns whether it did.
  bool Add(const SafetensorsEntry& entry);
  // The first kSegmentHeaderBytes of the file.
  std::string Bytes() const;
  // Whether these are Bytes().
  bool IsAt(std::span<const std::byte> beginning) const;

 private:
  std::string entries_;
};

// The entries of a header, in file order, from the beginning of a file of
// `file_bytes` bytes. Fails with kCorrupt if the header breaks a rule above, if
// an entry's size is not that of its dtype and shape, or if the last entry does
// not end where the file does. "__metadata__" is ignored.
Result<std::vector<SafetensorsEntry>> DecodeSafetensorsHeader(
    std::span<const std::byte> beginning, int64_t file_bytes);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_SEGMENTS_SAFETENSORS_HEADER_H_
