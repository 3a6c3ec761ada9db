#include "src/measure/share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace ttrace::share_test {
namespace {

TEST(ParseShare, TakesPartsFromOneToAll) {
  const auto share = ParseShare("3/8");
  ASSERT_TRUE(share.ok());
  EXPECT_EQ(*share, (Share{3, 8}));
  EXPECT_EQ(ToString(*share), "3/8");
  EXPECT_TRUE(ParseShare("1/1").ok());
  EXPECT_TRUE(ParseShare("8/8").ok());
  for (const char* text :
       {"", "3", "/8", "3/", "0/8", "9/8", "-1/8", "3/8x", " 3/8", "3 /8",
        "3/8/2", "a/b", "1/1000001", "99999999999999999999/8"}) {
    const auto bad = ParseShare(text);
    ASSERT_FALSE(bad.ok()) << text;
    EXPECT_NE(bad.error().message().find("3/8"), std::string::npos);
  }
}

std::vector<int64_t> Loads(const std::vector<int64_t>& sizes, int of) {
  std::vector<int64_t> loads(static_cast<size_t>(of));
  const auto parts = DealOut(sizes, of);
  for (size_t i = 0; i < sizes.size(); ++i) {
    loads.at(static_cast<size_t>(parts[i] - 1)) += sizes[i];
  }
  return loads;
}

TEST(DealOut, GivesPartsOfAboutEqualSize) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 1000; ++i) sizes.push_back(i * 7919 % 1000);
  const auto loads = Loads(sizes, 7);
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  EXPECT_EQ(std::accumulate(loads.begin(), loads.end(), int64_t{0}), 499500);
  EXPECT_LT(*most - *least, 10);
}

TEST(DealOut, DoesNotCutTheLargest) {
  EXPECT_EQ(Loads({1, 100, 1, 1}, 2), (std::vector<int64_t>{100, 3}));
}

TEST(DealOut, DealsOutWhatIsEmptyToo) {
  const auto parts = DealOut({0, 0, 0, 0}, 4);
  EXPECT_EQ((std::vector<int>{1, 2, 3, 4}), parts);
  EXPECT_TRUE(DealOut({}, 4).empty());
}

}  // namespace
}  // namespace ttrace::share_test
