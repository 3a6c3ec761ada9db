// StandInTrace: a candidate's trace in which pieces that were compared in place
// have values, too: those of the reference that they were found close to.
//
// For a diagnosis of pieces that were not: it looks at them beside their
// neighbours, and a neighbour that is right is as good as the reference. What
// the comparisons themselves say of a piece is unchanged (ReadInstead).
//
// Thread safety: all methods, from many threads.

#ifndef TTRACE_SRC_CHECK_STAND_IN_TRACE_H_
#define TTRACE_SRC_CHECK_STAND_IN_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "src/align/catalog.h"
#include "src/experiment/side.h"
#include "src/trace/reader.h"

namespace ttrace {

// How many of the pieces were compared in place.
enum class ComparedPieces : uint8_t { kNone, kSome, kAll };
ComparedPieces PiecesComparedInPlace(const TensorPieces& pieces);

class StandInTrace final : public Trace {
 public:
  // Keeps references to both.
  StandInTrace(const Trace& candidate, const Side& reference)
      : trace_(candidate), reference_(reference) {}

  const std::string& folder() const override { return trace_.folder(); }
  const std::string& manifest_json() const override {
    return trace_.manifest_json();
  }
  const DeviceMesh& mesh() const override { return trace_.mesh(); }
  int world_size() const override { return trace_.world_size(); }
  const std::vector<RankTrace>& ranks() const override {
    return trace_.ranks();
  }
  const std::vector<int>& missing_ranks() const override {
    return trace_.missing_ranks();
  }
  const RecordTable& records() const override { return trace_.records(); }
  const Coordinate& coordinate(int rank) const override {
    return trace_.coordinate(rank);
  }
  int grid_count() const override { return trace_.grid_count(); }
  const DeviceMesh& mesh(int grid) const override { return trace_.mesh(grid); }
  const Coordinate& coordinate(int rank, int grid) const override {
    return trace_.coordinate(rank, grid);
  }
  bool GivesValues(const Record& record) const override {
    return !record.compared_with().empty() || trace_.GivesValues(record);
  }
  // Of a record that was compared in place, fails as ReadLocal too.
  Status Read(const Record& record, int64_t offset,
              std::span<std::byte> out) const override;
  Result<std::vector<std::byte>> ReadInstead(
      const Record& record) const override {
    return trace_.ReadInstead(record);
  }
  Status Verify(const Record& record) const override {
    return trace_.Verify(record);
  }
  std::vector<DamagedRecord> damaged() const override {
    return trace_.damaged();
  }

 private:
  const Trace& trace_;
  const Side& reference_;
  // The last that was read: rules read tile by tile.
  mutable std::mutex mutex_;
  mutable Record held_;
  mutable std::vector<std::byte> values_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_STAND_IN_TRACE_H_
