// PieceInMemory: a trace of one record, whose values are in this process's
// memory.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_PIECE_IN_MEMORY_H_
#define TTRACE_SRC_TRACE_PIECE_IN_MEMORY_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "src/trace/one_rank_trace.h"
#include "src/trace/record_table.h"
#include "src/trace/writer.h"

namespace ttrace {

// As Trace::Read, of `values`, which are all of the record's.
Status ReadFromMemory(std::span<const std::byte> values, const Record& record,
                      int64_t offset, std::span<std::byte> out);

class PieceInMemory final : public OneRankTrace {
 public:
  // Of a rank of this meta.
  explicit PieceInMemory(RankMeta meta);

  // Makes `fields` the only record, with `values` of its local shape: they have
  // to stay as they are until the next call, but for those that are not in a
  // row, which are copied. Records that were given out before end.
  void Hold(RecordFields fields, const StridedView& values);

  const RecordTable& records() const override { return *records_; }
  Status Read(const Record& record, int64_t offset,
              std::span<std::byte> out) const override {
    return ReadFromMemory(values_, record, offset, out);
  }

 private:
  std::unique_ptr<RecordTable> records_;
  std::span<const std::byte> values_;
  std::vector<std::byte> copy_;  // of values that are not in a row
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_PIECE_IN_MEMORY_H_
