#include "src/experiment/row_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace ttrace::row_order_test {
namespace {

constexpr size_t kWidth = 16;

std::vector<double> RandomRows(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> out(count * kWidth);
  for (double& value : out) value = normal(generator);
  return out;
}

std::vector<double> Shuffled(const std::vector<double>& rows) {
  std::vector<size_t> order(rows.size() / kWidth);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 generator(7);
  std::shuffle(order.begin(), order.end(), generator);
  std::vector<double> out;
  for (const size_t row : order) {
    const auto* begin = rows.data() + row * kWidth;
    out.insert(out.end(), begin, begin + kWidth);
  }
  return out;
}

// Every value off by a part of itself, as round-off is.
std::vector<double> Rounded(std::vector<double> rows, double relative) {
  std::mt19937 generator(3);
  std::uniform_real_distribution<double> uniform(-relative, relative);
  for (double& value : rows) value *= 1 + uniform(generator);
  return rows;
}

TEST(SameRowsInAnotherOrder, OfManyRowsWithTheRoundOffOfBf16) {
  for (const size_t count : {size_t{5}, size_t{500}, size_t{20000}}) {
    const std::vector<double> rows = RandomRows(count, 1);
    EXPECT_TRUE(
        SameRowsInAnotherOrder(rows, Rounded(Shuffled(rows), 0x1p-8), kWidth));
  }
}

TEST(SameRowsInAnotherOrder, RowsThatOccurTwiceAreTwoRows) {
  std::vector<double> rows = RandomRows(20, 1);
  rows.insert(rows.end(), rows.begin(), rows.end());
  EXPECT_TRUE(SameRowsInAnotherOrder(rows, Shuffled(rows), kWidth));
  // One row in place of all others is not the same rows.
  std::vector<double> stale;
  for (size_t i = 0; i < 40; ++i) {
    stale.insert(stale.end(), rows.begin(), rows.begin() + kWidth);
  }
  EXPECT_FALSE(SameRowsInAnotherOrder(rows, stale, kWidth));
}

TEST(SameRowsInAnotherOrder, NotWhatIsInOrderButForRoundOff) {
  const std::vector<double> rows = RandomRows(500, 1);
  EXPECT_FALSE(SameRowsInAnotherOrder(rows, rows, kWidth));
  EXPECT_FALSE(SameRowsInAnotherOrder(rows, Rounded(rows, 1e-6), kWidth));
  EXPECT_FALSE(SameRowsInAnotherOrder(rows, Rounded(rows, 0x1p-8), kWidth));
}

TEST(SameRowsInAnotherOrder, NotOtherValues) {
  const std::vector<double> rows = RandomRows(500, 1);
  EXPECT_FALSE(SameRowsInAnotherOrder(rows, RandomRows(500, 2), kWidth));
  std::vector<double> half = Shuffled(rows);
  for (double& value : half) value /= 2;
  EXPECT_FALSE(SameRowsInAnotherOrder(rows, half, kWidth));
}

TEST(SameRowsInAnotherOrder, NotWhatCannotBeTold) {
  const std::vector<double> rows = RandomRows(64, 1);
  std::vector<double> strange = Shuffled(rows);
  strange[5] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(SameRowsInAnotherOrder(rows, strange, kWidth));
  EXPECT_FALSE(SameRowsInAnotherOrder(rows, {}, kWidth));
  EXPECT_FALSE(SameRowsInAnotherOrder({}, {}, kWidth));
  // Single numbers in another order look like other numbers.
  EXPECT_FALSE(SameRowsInAnotherOrder(rows, Shuffled(rows), 1));
}

}  // namespace
}  // namespace ttrace::row_order_test
