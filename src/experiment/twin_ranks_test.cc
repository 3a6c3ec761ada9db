#include "src/experiment/twin_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ttrace::twin_ranks_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

FedPart Fed(int rank, const RowKeys& rows, bool is_relative = false) {
  FedTensor tensor;
  tensor.rows = static_cast<int64_t>(rows.size());
  tensor.digests.whole = rows;
  tensor.is_relative = is_relative;
  FedPart part;
  part.rank = rank;
  part.tensors[FedName("x", 0)] = tensor;
  return part;
}

TEST(FindTwins, AreRanksOfTheSameRowsInWhateverOrder) {
  const std::vector<int> ranks = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
  const TwinRanks found =
      FindTwins({1, 2, 3, 4, 5, 6, 7, 8, 4, 3, 2, 1}, ranks, 8);
  EXPECT_THAT(found.ranks, ElementsAre(0, 2));
  EXPECT_THAT(found.keys, ElementsAre(1, 2, 3, 4));
}

TEST(FindTwins, AreNoneByChanceOrWhereEachReadsTheWhole) {
  const std::vector<int> ranks = {0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_THAT(FindTwins({1, 1, 2, 2, 1, 1, 2, 2}, ranks, 8).ranks, IsEmpty());
  EXPECT_THAT(FindTwins({1, 2, 3, 4, 1, 2, 3, 9}, ranks, 8).ranks, IsEmpty());
  EXPECT_THAT(FindTwins({1, 2, 3, 4, 1, 2, 3, 4}, ranks, 4).ranks, IsEmpty());
}

TEST(RanksFedAlike, CountAllMicroBatchesOfARank) {
  EXPECT_THAT(RanksFedAlike({{0, Fed(0, {1, 2})},
                             {1, Fed(1, {3, 4})},
                             {2, Fed(0, {3, 4})},
                             {3, Fed(1, {2, 1})}}),
              ElementsAre(0, 1));
  EXPECT_THAT(
      RanksFedAlike({{0, Fed(0, {1, 2, 3, 4})}, {1, Fed(1, {1, 2, 3, 5})}}),
      IsEmpty());
  // Indices within a batch are the same on all ranks.
  EXPECT_THAT(RanksFedAlike({{0, Fed(0, {1, 2, 3, 4}, true)},
                             {1, Fed(1, {1, 2, 3, 4}, true)}}),
              IsEmpty());
}

}  // namespace
}  // namespace ttrace::twin_ranks_test
