#include <gtest/gtest.h>

#include <vector>

#include "ttrace/layout.h"

namespace ttrace::index_list_test {
namespace {

std::vector<Segment> SegmentsOf(const std::vector<int64_t>& indices) {
  const auto dim = ListIndices(indices, 10);
  EXPECT_TRUE(dim.ok());
  EXPECT_EQ(dim->global_size, 10);
  EXPECT_EQ(dim->local_size(), static_cast<int64_t>(indices.size()));
  return dim->segments;
}

TEST(ListIndices, KeepsTheLocalOrderAndJoinsNeighbours) {
  EXPECT_EQ(SegmentsOf({}), std::vector<Segment>());
  EXPECT_EQ(SegmentsOf({7, 8, 9, 2, 0, 1}),
            (std::vector<Segment>{{7, 3}, {2, 1}, {0, 2}}));
  // The next one up, but not the next one in the tensor.
  EXPECT_EQ(SegmentsOf({3, 2}), (std::vector<Segment>{{3, 1}, {2, 1}}));
}

TEST(ListIndices, RefusesWhatNoTensorHolds) {
  for (const std::vector<int64_t>& bad :
       std::vector<std::vector<int64_t>>{{-1}, {10}, {4, 4}, {4, 5, 1, 5}}) {
    const auto dim = ListIndices(bad, 10);
    ASSERT_FALSE(dim.ok());
    EXPECT_EQ(dim.error().code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ttrace::index_list_test
