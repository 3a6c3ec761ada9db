// DeferredRecords: records of a rank that are decided on when their leg is
// sealed.
//
// Until then their values lie in a file without a name, and after that for as
// long as the next iteration may need them: what an optimizer's step left is
// what the next one finds. The files are written again and again, so that they
// take the room of two iterations, however many there are.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_WRITING_DEFERRED_RECORDS_H_
#define TTRACE_SRC_TRACE_WRITING_DEFERRED_RECORDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/file.h"
#include "src/trace/record_fields.h"
#include "ttrace/status.h"

namespace ttrace {

class DeferredRecords {
 public:
  // The files are made in `folder` when they are needed.
  explicit DeferredRecords(std::string folder) : folder_(std::move(folder)) {}

  struct Held {
    // Its extent has the checksum and the size of the values. Elsewhere in it
    // is where they lie if `same_as` is set: in a segment, of that record.
    RecordFields record;
    uint64_t generation = 0;  // else: where they lie here
    int64_t offset = 0;
  };

  // Values that are in a segment already: `record` says which (same_as).
  void Hold(RecordFields record);
  // Values that are given by Begin and Write, all of record.extent.bytes,
  // before the next call.
  Status Begin(RecordFields record);
  Status Write(std::span<const std::byte> bytes);

  // What is to be decided on, in the order in which it came.
  const std::vector<Held>& held() const { return held_; }
  // It was. Values of the generation before can no longer be read.
  void Decided();

  // As Trace::Read, of values that lie here.
  // REQUIRES: they were not given up.
  Status Read(const Held& held, int64_t offset, std::span<std::byte> out) const;

 private:
  struct Scratch {
    File file;
    int64_t end = 0;  // of what is written in this generation
  };
  Scratch& Current() { return scratch_[generation_ % scratch_.size()]; }

  std::string folder_;
  std::vector<Held> held_;
  uint64_t generation_ = 0;
  std::array<Scratch, 2> scratch_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITING_DEFERRED_RECORDS_H_
