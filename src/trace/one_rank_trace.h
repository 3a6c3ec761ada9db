// OneRankTrace: a trace of which one rank is all that is there, for that rank
// itself, before anything of it is written. What reads a trace reads it.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_ONE_RANK_TRACE_H_
#define TTRACE_SRC_TRACE_ONE_RANK_TRACE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/reader.h"
#include "src/trace/writer.h"

namespace ttrace {

class OneRankTrace : public Trace {
 public:
  const std::string& folder() const override { return ranks_.front().folder; }
  const std::string& manifest_json() const override { return manifest_; }
  const DeviceMesh& mesh() const override { return meta().mesh; }
  int world_size() const override { return meta().world_size; }
  const std::vector<RankTrace>& ranks() const override { return ranks_; }
  const std::vector<int>& missing_ranks() const override { return missing_; }
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
  // All values are there.
  Result<std::vector<std::byte>> ReadInstead(
      const Record& record) const override {
    return Error(ErrorCode::kInvalidArgument,
                 ToString(record.id()) + ": its values are held");
  }
  // Nobody else has them yet.
  Status Verify(const Record& /*record*/) const override { return Done{}; }
  std::vector<DamagedRecord> damaged() const override { return {}; }

 protected:
  // `rank` has the meta, and of notes and seals what matters.
  explicit OneRankTrace(RankTrace rank) { ranks_.push_back(std::move(rank)); }

 private:
  const RankMeta& meta() const { return ranks_.front().meta; }

  std::vector<RankTrace> ranks_;  // one
  std::string manifest_ = "{}";
  std::vector<int> missing_;  // none
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_ONE_RANK_TRACE_H_
