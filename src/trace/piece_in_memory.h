// PieceInMemory: a trace of one record, whose values are in this process's
// memory. What reads a trace reads it, before anything is written.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_PIECE_IN_MEMORY_H_
#define TTRACE_SRC_TRACE_PIECE_IN_MEMORY_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/trace/reader.h"
#include "src/trace/record_table.h"
#include "src/trace/writer.h"

namespace ttrace {

// As Trace::Read, of `values`, which are all of the record's.
Status ReadFromMemory(std::span<const std::byte> values, const Record& record,
                      int64_t offset, std::span<std::byte> out);

class PieceInMemory final : public Trace {
 public:
  // Of a rank of this meta.
  explicit PieceInMemory(RankMeta meta);

  // Makes `fields` the only record, with `values` of its local shape: they have
  // to stay as they are until the next call, but for those that are not in a
  // row, which are copied. Records that were given out before end.
  void Hold(RecordFields fields, const StridedView& values);

  const std::string& folder() const override { return folder_; }
  const std::string& manifest_json() const override { return manifest_; }
  const DeviceMesh& mesh() const override { return meta().mesh; }
  int world_size() const override { return meta().world_size; }
  const std::vector<RankTrace>& ranks() const override { return ranks_; }
  const std::vector<int>& missing_ranks() const override { return missing_; }
  const RecordTable& records() const override { return *records_; }
  const Coordinate& coordinate(int /*rank*/) const override {
    return meta().coordinate;
  }
  int grid_count() const override {
    return static_cast<int>(meta().views.size()) + 1;
  }
  const DeviceMesh& mesh(int grid) const override {
    return meta().MeshOf(grid);
  }
  const Coordinate& coordinate(int /*rank*/, int grid) const override {
    return meta().CoordinateIn(grid);
  }
  Status Read(const Record& record, int64_t offset,
              std::span<std::byte> out) const override {
    return ReadFromMemory(values_, record, offset, out);
  }
  Result<std::vector<std::byte>> ReadInstead(
      const Record& record) const override;
  Status Verify(const Record& /*record*/) const override { return Done{}; }
  std::vector<DamagedRecord> damaged() const override { return {}; }

 private:
  const RankMeta& meta() const { return ranks_.front().meta; }

  std::string folder_;
  std::string manifest_ = "{}";
  std::vector<RankTrace> ranks_;  // one
  std::vector<int> missing_;
  std::unique_ptr<RecordTable> records_;
  std::span<const std::byte> values_;
  std::vector<std::byte> copy_;  // of values that are not in a row
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_PIECE_IN_MEMORY_H_
