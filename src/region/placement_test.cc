#include <gtest/gtest.h>

#include <string>

#include "ttrace/mesh.h"

namespace ttrace::placement_test {
namespace {

TEST(Placements, TextFormRoundTrips) {
  const std::string text =
      "dp:Partial(sum) cp:ZigzagShard(0) tp:StridedShard(0,2) pp:Replicate "
      "ep:Shard(3) edp:RaggedShard mb:Partial(avg)";
  const Result<PlacementMap> parsed = ParsePlacements(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(ToString(*parsed), text);
  const PlacementMap expected = {{"dp", Partial{ReduceOp::kSum}},
                                 {"cp", ZigzagShard{0}},
                                 {"tp", StridedShard{0, 2}},
                                 {"pp", Replicate{}},
                                 {"ep", Shard{3}},
                                 {"edp", RaggedShard{}},
                                 {"mb", Partial{ReduceOp::kAvg}}};
  EXPECT_EQ(*parsed, expected);
}

TEST(Placements, NoTextIsNoPlacement) {
  ASSERT_TRUE(ParsePlacements("").ok());
  EXPECT_TRUE(ParsePlacements("")->empty());
}

TEST(Placements, AnythingElseIsRefused) {
  for (const char* text : {" ",
                           "tp",
                           "tp:",
                           ":Shard(0)",
                           "tp:Shard",
                           "tp:Shard()",
                           "tp:Shard(-1)",
                           "tp:Shard(0",
                           "tp:Shard(0))",
                           "tp:Shard(0x1)",
                           "tp:Shard(+1)",
                           "tp:Shard( 0)",
                           "tp:Shard(99999999999)",
                           "tp:Shard(0,1)",
                           "tp:StridedShard(0)",
                           "tp:StridedShard(0,0)",
                           "tp:StridedShard(0,-1)",
                           "tp:StridedShard(0,2,3)",
                           "tp:Partial",
                           "tp:Partial(max)",
                           "tp:replicate",
                           "tp:RaggedShard()",
                           "tp:RaggedShard(0)",
                           "tp:Ragged",
                           "tp:Shard(0)  dp:Shard(1)",
                           " tp:Shard(0)",
                           "tp:Shard(0) ",
                           "tp:Shard(0)\n"}) {
    const Result<PlacementMap> parsed = ParsePlacements(text);
    ASSERT_FALSE(parsed.ok()) << "'" << text << "'";
    EXPECT_EQ(parsed.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(Placements, AMessageDoesNotRepeatAMegabyte) {
  const Result<PlacementMap> parsed =
      ParsePlacements(std::string(1 << 20, 'x'));
  ASSERT_FALSE(parsed.ok());
  EXPECT_LT(parsed.error().message().size(), 200u);
}

TEST(DeviceMesh, FindsDimensionsByName) {
  const DeviceMesh mesh{{{"pp", 2}, {"tp", 4}}};
  EXPECT_EQ(mesh.Find("tp"), 1);
  EXPECT_EQ(mesh.Find("cp"), -1);
}

}  // namespace
}  // namespace ttrace::placement_test
