// OwnTrace: what a rank has recorded so far, for the rank itself: records that
// lie in its segments, and those that were set aside. What reads a trace reads
// it, before a line of it is written.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_OWN_TRACE_H_
#define TTRACE_SRC_TRACE_OWN_TRACE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/trace/reader.h"
#include "src/trace/record_table.h"
#include "src/trace/set_aside.h"
#include "src/trace/writer.h"
#include "src/trace/written_records.h"

namespace ttrace {

class OwnTrace final : public Trace {
 public:
  // `rank` has the meta, and of notes and seals what matters. Both others have
  // to stay.
  OwnTrace(RankTrace rank, const SetAside& aside, WrittenRecords& written)
      : ranks_({std::move(rank)}), aside_(aside), written_(written) {}

  // In the order of execution. Returns the record.
  Record Add(const RecordFields& written);
  Record Add(const SetAside::Held& held);

  const std::string& folder() const override { return ranks_.front().folder; }
  const std::string& manifest_json() const override { return manifest_; }
  const DeviceMesh& mesh() const override { return meta().mesh; }
  int world_size() const override { return meta().world_size; }
  const std::vector<RankTrace>& ranks() const override { return ranks_; }
  const std::vector<int>& missing_ranks() const override { return missing_; }
  const RecordTable& records() const override { return records_; }
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
              std::span<std::byte> out) const override;
  Result<std::vector<std::byte>> ReadInstead(
      const Record& record) const override;
  // Nobody else has the files yet.
  Status Verify(const Record& /*record*/) const override { return Done{}; }
  std::vector<DamagedRecord> damaged() const override { return {}; }

 private:
  const RankMeta& meta() const { return ranks_.front().meta; }
  Record AddPlace(SetAside::Held held, bool aside);

  std::vector<RankTrace> ranks_;  // one
  std::string manifest_ = "{}";
  std::vector<int> missing_;
  RecordTable records_;
  struct Place {
    SetAside::Held held;
    bool aside = false;  // else in a segment
  };
  std::vector<Place> places_;  // by number of the record
  const SetAside& aside_;
  WrittenRecords& written_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_OWN_TRACE_H_
