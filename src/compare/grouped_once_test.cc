#include "src/compare/grouped_once.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/equal_copies.h"
#include "src/compare/testing/sharded_trace.h"

namespace ttrace::grouped_once_test {
namespace {

Sharding Copied() {
  Sharding sharding;
  sharding.mesh.dims = {{"dp", 4}, {"tp", 2}};
  sharding.placements = {{"tp", Shard{0}}};
  return sharding;
}

std::vector<double> Values() { return {1, -2, 0.5, 3, 1e-30, 4, 0, 7}; }

TEST(GroupedOnce, GivesTheSameGroupsToAllWhoAskAlike) {
  const ShardedTrace trace({4, 2}, Values(), Copied());
  const TensorPieces pieces = trace.pieces();
  const TensorPieces others = pieces;
  GroupedOnce grouped;
  CompareOptions options;
  const SharedGroups groups = OrDie(grouped.Of(pieces, options));
  EXPECT_EQ(groups->size(), 2U);
  EXPECT_EQ(OrDie(grouped.Of(pieces, options)), groups);
  options.element_scale = 3;  // of what is done with them
  options.grouped = &grouped;
  EXPECT_EQ(OrDie(GroupShared(pieces, options)), groups);
  EXPECT_NE(OrDie(grouped.Of(others, options)), groups);
  options.sum_over = {"dp"};
  const SharedGroups sums = OrDie(grouped.Of(pieces, options));
  EXPECT_EQ(sums->front().instances.size(), 1U);
  EXPECT_EQ(sums->front().instances.front().terms.size(), 4U);
  options.sum_over = {};
  options.extra_scale = 2;
  EXPECT_EQ(OrDie(grouped.Of(pieces, options))
                ->front()
                .instances.front()
                .terms.front()
                .weight,
            2);
}

// What is joined as it is found is what is joined afterwards, also where copies
// of several values follow one another.
TEST(GroupedOnce, CopiesAreJoinedAsTheyAreFound) {
  const ShardedTrace reference({4, 2}, Values(), Sharding{});
  const ShardedTrace candidate({4, 2}, Values(), Copied(), [](Piece* piece) {
    if (piece->rank >= 4) piece->values.front() += 0.5;
    return true;
  });
  CompareOptions options;
  auto each = OrDie(CompareTensor(reference.pieces(), candidate.pieces()));
  EXPECT_EQ(each.instances.size(), 8U);
  JoinEqualCopies(&each);
  GroupedOnce grouped;
  options.grouped = &grouped;
  options.join_copies = true;
  const TensorPieces r = reference.pieces();
  const TensorPieces c = candidate.pieces();
  const auto joined = OrDie(CompareTensor(r, c, options));
  EXPECT_EQ(joined.total.sum_sq_err, each.total.sum_sq_err);
  ASSERT_EQ(joined.instances.size(), 4U);
  ASSERT_EQ(each.instances.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(joined.instances[i].ranks, each.instances[i].ranks);
    EXPECT_EQ(joined.instances[i].copies, 2);
    EXPECT_EQ(joined.instances[i].region, each.instances[i].region);
    EXPECT_EQ(joined.instances[i].stats.sum_sq_err,
              each.instances[i].stats.sum_sq_err);
  }
  const auto copies = OrDie(CompareReplicas(c, options));
  EXPECT_EQ(copies.differing, 4);
  EXPECT_EQ(copies.copies, 6);
}

}  // namespace
}  // namespace ttrace::grouped_once_test
