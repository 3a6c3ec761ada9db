#include "src/compare/tile_reader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "src/compare/instances.h"
#include "src/compare/sweep.h"
#include "src/compare/testing/sharded_trace.h"

namespace ttrace::tile_reader_test {
namespace {

// Another trace, and how much is read of it.
class CountingTrace final : public Trace {
 public:
  explicit CountingTrace(const Trace& of) : of_(of) {}

  int64_t bytes() const { return bytes_; }

  const std::string& folder() const override { return of_.folder(); }
  const std::string& manifest_json() const override {
    return of_.manifest_json();
  }
  const DeviceMesh& mesh() const override { return of_.mesh(); }
  int world_size() const override { return of_.world_size(); }
  const std::vector<RankTrace>& ranks() const override { return of_.ranks(); }
  const std::vector<int>& missing_ranks() const override {
    return of_.missing_ranks();
  }
  const RecordTable& records() const override { return of_.records(); }
  const Coordinate& coordinate(int rank) const override {
    return of_.coordinate(rank);
  }
  int grid_count() const override { return of_.grid_count(); }
  const DeviceMesh& mesh(int grid) const override { return of_.mesh(grid); }
  const Coordinate& coordinate(int rank, int grid) const override {
    return of_.coordinate(rank, grid);
  }
  Status Read(const Record& record, int64_t offset,
              std::span<std::byte> out) const override {
    bytes_ += static_cast<int64_t>(out.size());
    return of_.Read(record, offset, out);
  }
  Result<std::vector<std::byte>> ReadInstead(
      const Record& record) const override {
    return of_.ReadInstead(record);
  }
  Status Verify(const Record& record) const override {
    return of_.Verify(record);
  }
  std::vector<DamagedRecord> damaged() const override { return of_.damaged(); }

 private:
  const Trace& of_;
  mutable std::atomic<int64_t> bytes_ = 0;
};

// Gaps of 24 KB, although what is between them is a quarter of all.
TEST(TileReader, PartsByColumnsReadAWideReferenceOnceTogether) {
  const Shape shape = {24, 8192};
  const auto count = static_cast<size_t>(24 * 8192);
  const std::vector<double> values = RandomIntegers(1, count);
  Sharding columns;
  columns.mesh.dims = {{"tp", 4}};
  columns.placements = {{"tp", Shard{1}}};
  const ShardedTrace whole(shape, values, kWhole);
  const ShardedTrace parts(shape, values, columns);
  const TensorPieces reference = whole.pieces();
  const TensorPieces candidate = parts.pieces();
  const CountingTrace counting(*reference.trace);
  std::vector<InstanceGroup> refs = OrDie(GroupInstances(reference, {}));
  refs.front().instances.front().trace = &counting;
  const auto cands = OrDie(GroupInstances(candidate, {}));
  ASSERT_EQ(cands.size(), 4U);
  ErrorSums sums;
  for (const InstanceGroup& group : cands) {
    sums.Merge(OrDie(CompareInstances(
        {{refs.front().instances.front(), refs.front().layout}},
        {group.instances.front(), group.layout}, 0, 1 << 16)));
  }
  EXPECT_EQ(sums.count, static_cast<int64_t>(count));
  EXPECT_EQ(sums.mismatched, 0);
  EXPECT_EQ(counting.bytes(), static_cast<int64_t>(4 * count));
}

}  // namespace
}  // namespace ttrace::tile_reader_test
