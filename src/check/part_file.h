// The file of one part of a check: what a share of the work measured.
//
//   magic, then chunks: kind (1 byte), length (8 bytes, little-endian), bytes
//   first the head (part_head.h), then what was measured, a tensor a chunk, or
//   why nothing was; last the end, with the checksum of all before it
//
// A file is there whole or not at all: it is written beside its place and
// renamed. It is for `ttrace merge` of the version that wrote it, and no format
// for other programs.
//
// Thread safety: pure functions but for the file system.

#ifndef TTRACE_SRC_CHECK_PART_FILE_H_
#define TTRACE_SRC_CHECK_PART_FILE_H_

#include <string>
#include <vector>

#include "src/check/part_head.h"
#include "src/measure/measurements.h"
#include "ttrace/status.h"

namespace ttrace {

// Where a part goes: `out` itself, or in `out` if that is a folder or ends with
// a slash.
std::string PartPath(const std::string& out, const Share& share);
// The parts that lie in a folder, sorted; a file stands for itself.
Result<std::vector<std::string>> FindParts(const std::string& path);

// Frees what of `measured` is written. Fails with kInvalidArgument if there is
// something else than a part at `path`, with kIo if it cannot be written; then
// nothing is left there.
Status WritePart(const std::string& path, const PartHead& head,
                 Measurements* measured);
// A part that came to nothing says why.
Status WriteFailedPart(const std::string& path, const PartHead& head,
                       const std::string& failure);

// What is known of a part without reading what it measured.
struct PartSummary {
  std::string path;
  PartHead head;      // of another format, only the first two fields
  std::string wrong;  // why it is of no use; empty: nothing seen so far
};
// Fails with kNotFound, kIo, or kInvalidArgument if it is no part.
Result<PartSummary> ReadPartSummary(const std::string& path);

// Fails with kCorrupt if the bytes are not those that were written.
Result<Measurements> ReadPart(const PartSummary& part);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_PART_FILE_H_
