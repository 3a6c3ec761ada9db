#include "src/numeric/row_digests.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace ttrace::row_digests_test {
namespace {

RowDigests Of(const std::vector<int64_t>& values, size_t rows) {
  return DigestRows(std::as_bytes(std::span(values)), rows, sizeof(int64_t));
}

TEST(RowDigests, EqualRowsHaveEqualDigests) {
  const RowDigests rows = Of({1, 2, 3, 4, 1, 2}, 3);
  EXPECT_EQ(rows.whole[0], rows.whole[2]);
  EXPECT_NE(rows.whole[0], rows.whole[1]);
}

TEST(RowDigests, ElementsInAnotherOrderAreAnotherRow) {
  const RowDigests rows = Of({1, 2, 2, 1}, 2);
  EXPECT_NE(rows.whole[0], rows.whole[1]);
}

TEST(RowDigests, ARowThatIsPaddedIsKnownByWhatIsNotPadding) {
  const RowDigests alone = Of({5, 6, 7}, 1);
  const RowDigests padded = Of({5, 6, 7, 0, 0}, 1);
  const RowDigests longer = Of({5, 6, 7, 0, 0, 0, 0}, 1);
  EXPECT_EQ(alone.whole[0], padded.without_end[0]);
  EXPECT_EQ(longer.without_end[0], padded.without_end[0]);
  const RowDigests from_left = Of({0, 0, 5, 6, 7}, 1);
  EXPECT_EQ(alone.whole[0], from_left.without_begin[0]);
  EXPECT_NE(from_left.without_end[0], padded.without_end[0]);
}

TEST(RowDigests, OfAPaddedRowTheLastTokenMayBeLeftOutAsOfOneThatIsNone) {
  const RowDigests cut = Of({5, 6}, 1);
  const RowDigests padded = Of({5, 6, 7, 0, 0}, 1);
  EXPECT_EQ(cut.whole[0], padded.cut_end[0]);
  const RowDigests from_left = Of({0, 0, 7, 5, 6}, 1);
  EXPECT_EQ(cut.whole[0], from_left.cut_begin[0]);
  // There is nothing left to leave out.
  const RowDigests empty = Of({3, 3}, 1);
  EXPECT_EQ(empty.cut_end[0], empty.without_end[0]);
  EXPECT_EQ(empty.cut_begin[0], empty.without_begin[0]);
}

TEST(RowDigests, OfARowOfOneValueNothingIsLeft) {
  const RowDigests rows = Of({3, 3, 8, 8}, 2);
  EXPECT_NE(rows.whole[0], rows.whole[1]);
  EXPECT_EQ(rows.without_end[0], rows.without_end[1]);
  EXPECT_EQ(rows.without_begin[0], rows.without_end[0]);
}

TEST(RowDigests, RowsWithoutElementsAreEqual) {
  const RowDigests rows = DigestRows({}, 2, 4);
  EXPECT_EQ(std::set<uint64_t>(rows.whole.begin(), rows.whole.end()).size(),
            1U);
}

}  // namespace
}  // namespace ttrace::row_digests_test
