#include "src/measure/repeated_bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/testing/sharded_trace.h"

namespace ttrace::repeated_bytes_test {
namespace {

std::vector<double> Values() { return {1, -2, 0.5, 3, 1e-30, 4, 0, 7}; }

Sharding Copied(Placement rows = Shard{0}) {
  Sharding sharding;
  sharding.mesh.dims = {{"dp", 3}, {"tp", 2}};
  sharding.placements = {{"tp", rows}};
  return sharding;
}

TEST(RepeatedBytes, AreEqualWhereComparingFindsNothing) {
  const ShardedTrace real({4, 2}, Values(), Copied());
  const ShardedTrace replay({4, 2}, Values(), Copied());
  EXPECT_FALSE(IsSameBytes(real.pieces(), replay.pieces()));
  EXPECT_TRUE(HasEqualBytes(real.pieces(), replay.pieces()));
  EXPECT_TRUE(OrDie(CompareTensor(real.pieces(), replay.pieces()))
                  .total.bitwise_equal());
}

TEST(RepeatedBytes, OfOnePieceThatDiffersAreNotEqual) {
  const ShardedTrace real({4, 2}, Values(), Copied());
  const ShardedTrace replay({4, 2}, Values(), Copied(), [](Piece* piece) {
    if (piece->rank == 5) piece->values.back() += 1;
    return true;
  });
  EXPECT_FALSE(HasEqualBytes(real.pieces(), replay.pieces()));
}

// Whatever the values are: they are elsewhere, or too few.
TEST(RepeatedBytes, LieInTheSamePlaces) {
  const ShardedTrace real({2, 2}, {1, 1, 1, 1}, Copied(Shard{0}));
  const ShardedTrace columns({2, 2}, {1, 1, 1, 1}, Copied(Shard{1}));
  const ShardedTrace fewer({2, 2}, {1, 1, 1, 1}, Copied(),
                           [](Piece* piece) { return piece->rank != 4; });
  EXPECT_FALSE(HasEqualBytes(real.pieces(), columns.pieces()));
  EXPECT_FALSE(HasEqualBytes(real.pieces(), fewer.pieces()));
}

// By the index they are as good as the others.
TEST(RepeatedBytes, ThatAreDamagedAreNotEqual) {
  const ShardedTrace real({4, 2}, Values(), Copied());
  const ShardedTrace replay({4, 2}, Values(), Copied());
  const TensorPieces pieces = replay.pieces();
  const Record last = pieces.pieces.back();
  SetFileByte(replay.folder() + "/rank-00005.r0/segment-00000.safetensors",
              static_cast<size_t>(last.extent().offset), '?');
  EXPECT_EQ(last.rank(), 5);
  EXPECT_FALSE(HasEqualBytes(real.pieces(), pieces));
  EXPECT_EQ(pieces.trace->damaged().size(), 1U);
}

}  // namespace
}  // namespace ttrace::repeated_bytes_test
