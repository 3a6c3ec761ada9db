#include "src/trace/format.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace ttrace::format_test {
namespace {

TEST(RankFolder, NameRoundTrips) {
  EXPECT_EQ(RankFolderName({3, 0}), "rank-00003.r0");
  for (const int rank : {0, 7, 99'999, 100'000, 1'000'000}) {
    for (const int restart : {0, 1, 12}) {
      const auto parsed = ParseRankFolderName(RankFolderName({rank, restart}));
      ASSERT_TRUE(parsed);
      EXPECT_EQ(parsed->rank, rank);
      EXPECT_EQ(parsed->restart, restart);
    }
  }
}

TEST(RankFolder, HasExactlyOneSpelling) {
  for (const char* name :
       {"", "rank-", "rank-00003", "rank-3.r0", "rank-000003.r0",
        "rank-00003.r00", "rank-00003.r", "rank-00003.r-1", "rank--0003.r0",
        "rank-00003.r0.tmp", "Rank-00003.r0", "rank-00003.r0/",
        "rank-99999999999.r0", "rank-00003.r+1", "rank-.r0"}) {
    EXPECT_FALSE(ParseRankFolderName(name)) << name;
  }
}

TEST(Abridged, ShortensOnlyLongText) {
  EXPECT_EQ(Abridged("short"), "short");
  EXPECT_EQ(Abridged(std::string(1000, 'x')), std::string(120, 'x') + "...");
}

}  // namespace
}  // namespace ttrace::format_test
