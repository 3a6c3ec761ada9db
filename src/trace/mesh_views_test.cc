// Ranks that lie in several grids: what meta.json may say, and which grid a
// record speaks of.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "src/trace/index/record_check.h"
#include "src/trace/rank_meta.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::mesh_views_test {
namespace {

// Six ranks: (dp 2, tp 3) and, no refinement of it, (pp 1, edp 3, ep 2).
RankMeta Meta(int rank) {
  RankMeta meta;
  meta.rank = rank;
  meta.world_size = 6;
  meta.mesh.dims = {{"dp", 2}, {"tp", 3}};
  meta.coordinate = {rank / 3, rank % 3};
  meta.views = {{{{{"pp", 1}, {"edp", 3}, {"ep", 2}}}, {0, rank / 2, rank % 2}},
                {{{{"dp", 2}, {"edp", 3}}}, {rank / 3, rank % 3}}};
  return meta;
}

TEST(MeshViews, RoundTrip) {
  const std::string json = OrDie(EncodeRankMeta(Meta(5)));
  EXPECT_NE(
      json.find(
          R"("coordinate":[1,2],"views":[{"mesh":[["pp",1],["edp",3],["ep",2]],)"
          R"("coordinate":[0,2,1]},{"mesh":[["dp",2],["edp",3]],)"
          R"("coordinate":[1,2]}],"run_id")"),
      std::string::npos)
      << json;
  EXPECT_EQ(OrDie(DecodeRankMeta(json)).views, Meta(5).views);
  RankMeta plain = Meta(5);
  plain.views.clear();
  EXPECT_EQ(OrDie(EncodeRankMeta(plain)).find("views"), std::string::npos);
}

TEST(MeshViews, ThatContradictTheWorldAreRefused) {
  const std::vector<std::function<void(RankMeta&)>> changes = {
      [](RankMeta& m) { m.views[0].mesh.dims[1].size = 2; },
      [](RankMeta& m) { m.views[1].mesh.dims[1].size = 4; },
      [](RankMeta& m) { m.views[0].mesh.dims[1].size = 0; },
      [](RankMeta& m) { m.views[0].mesh.dims[1].name = "ep"; },
      [](RankMeta& m) { m.views[0].mesh.dims[1].name = "mb"; },
      [](RankMeta& m) { m.views[0].mesh.dims[1].name = "e p"; },
      [](RankMeta& m) { m.views[0].coordinate[1] = 3; },
      [](RankMeta& m) { m.views[0].coordinate[1] = -1; },
      [](RankMeta& m) { m.views[0].coordinate.pop_back(); },
      [](RankMeta& m) { m.views[0] = {}; },
      [](RankMeta& m) { m.views.resize(17, m.views[0]); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    RankMeta meta = Meta(1);
    changes[i](meta);
    EXPECT_FALSE(CheckRankMeta(meta).ok()) << i;
    const Result<RankMeta> decoded =
        DecodeRankMeta(OrDie(EncodeRankMeta(meta)));
    ASSERT_FALSE(decoded.ok()) << i;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << i;
  }
  RankMeta most = Meta(1);
  most.views.resize(16, most.views[0]);
  EXPECT_TRUE(DecodeRankMeta(OrDie(EncodeRankMeta(most))).ok());
}

TEST(MeshViews, OfAnotherTypeAreCorrupt) {
  const std::string json = OrDie(EncodeRankMeta(Meta(1)));
  const size_t begin = json.find("\"views\":") + 8;
  const size_t end = json.find(",\"run_id\"");
  for (const char* views :
       {"null", "{}", "1", "[1]", "[[]]", "[{}]", R"([{"mesh":[["a",6]]}])",
        R"([{"coordinate":[0]}])", R"([{"mesh":{"a":6},"coordinate":[0]}])",
        R"([{"mesh":[["a"]],"coordinate":[0]}])",
        R"([{"mesh":[["a",6.5]],"coordinate":[0]}])",
        R"([{"mesh":[["a",6]],"coordinate":["0"]}])",
        R"([{"mesh":[["a",6]],"coordinate":[9223372036854775807]}])",
        R"([{"mesh":[["a",9223372036854775807]],"coordinate":[0]}])"}) {
    std::string bad = json;
    bad.replace(begin, end - begin, views);
    const Result<RankMeta> decoded = DecodeRankMeta(bad);
    ASSERT_FALSE(decoded.ok()) << views;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << views;
  }
  std::string none = json;
  none.replace(begin, end - begin, "[]");
  EXPECT_TRUE(DecodeRankMeta(none).ok());
}

TEST(MeshViews, ARecordSpeaksOfTheFirstThatHasAllItsNames) {
  const auto grid = [](const std::string& placements,
                       const std::vector<std::string>& reduced_over) {
    const auto found =
        FindGrid(Meta(0), OrDie(ParsePlacements(placements)), reduced_over);
    return found.ok() ? *found : -1;
  };
  EXPECT_EQ(grid("", {}), 0);
  EXPECT_EQ(grid("mb:Partial(sum)", {"mb"}), 0);
  EXPECT_EQ(grid("tp:Shard(0) dp:Replicate", {}), 0);
  EXPECT_EQ(grid("edp:Partial(sum) ep:Shard(0)", {"mb"}), 1);
  EXPECT_EQ(grid("edp:Replicate", {}), 1);
  EXPECT_EQ(grid("", {"pp"}), 1);
  EXPECT_EQ(grid("edp:Replicate", {"dp"}), 2);
  // Names of two grids, or of none.
  EXPECT_EQ(grid("tp:Shard(0) ep:Shard(0)", {}), -1);
  EXPECT_EQ(grid("tp:Shard(0)", {"edp"}), -1);
  EXPECT_EQ(grid("etp:Shard(0)", {}), -1);
  EXPECT_EQ(grid("", {"etp"}), -1);
  EXPECT_EQ(grid("tp:Shard(0)", {"etp"}), -1);
}

RecordSpec ExpertSpec() {
  RecordSpec spec = PlainSpec("expert", DType::kF32, {2});
  spec.global_shape = {4};
  spec.placements = {{"ep", Shard{0}}};
  spec.reduced_over = {"edp"};
  return spec;
}

void WriteRank(const std::string& folder, const RankMeta& meta,
               const RecordSpec& spec) {
  const auto writer = OrDie(TraceWriter::Open(folder, meta));
  const std::vector<float> values = {1, 2};
  const std::vector<int64_t> strides = {1};
  OrDie(writer->Append(spec, RealOccurrence(),
                       {std::as_bytes(std::span(values)).data(), strides}));
  OrDie(writer->Close(true, ""));
}

TEST(MeshViews, ATraceGivesThemByNumber) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  for (int rank = 0; rank < 6; ++rank) {
    WriteRank(folder.path(), Meta(rank), ExpertSpec());
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  ASSERT_EQ(trace->grid_count(), 3);
  EXPECT_EQ(trace->mesh(0), trace->mesh());
  EXPECT_EQ(trace->mesh(1), Meta(0).views[0].mesh);
  EXPECT_EQ(trace->mesh(2), Meta(0).views[1].mesh);
  for (const Record& record : trace->records()) {
    const int rank = record.rank();
    EXPECT_EQ(trace->coordinate(rank, 0), trace->coordinate(rank));
    EXPECT_EQ(trace->coordinate(rank, 1), (Coordinate{0, rank / 2, rank % 2}));
    EXPECT_EQ(record.grid(), 1);
    EXPECT_EQ(record.layout().dims[0].segments,
              (std::vector<Segment>{{2 * (rank % 2), 2}}));
  }
  RecordSpec mixed = ExpertSpec();
  mixed.reduced_over = {"tp"};
  const auto writer = OrDie(TraceWriter::Open(folder.path(), Meta(0)));
  const std::vector<int64_t> strides = {1};
  const float values[2] = {};
  const Status status =
      writer->Append(mixed, RealOccurrence(),
                     {reinterpret_cast<const std::byte*>(values), strides});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
}

TEST(MeshViews, ThatDifferBetweenRanksAreCorrupt) {
  const std::vector<std::pair<std::function<void(RankMeta&)>, std::string>>
      changes = {
          {[](RankMeta& m) { m.views.pop_back(); },
           "the number of views differs"},
          {[](RankMeta& m) { m.views[1].mesh.dims[1].name = "other"; },
           "a view's mesh differs"},
          {[](RankMeta& m) {
             m.views[1].coordinate = {0, 0};
           },
           "same coordinate in a view"},
      };
  for (const auto& [change, message] : changes) {
    const ScratchFolder folder;
    OrDie(CreateTraceFolder(folder.path(), "{}", false));
    RankMeta second = Meta(1);
    change(second);
    WriteRank(folder.path(), Meta(0), ExpertSpec());
    WriteRank(folder.path(), second, ExpertSpec());
    const auto trace = Trace::Open(folder.path());
    ASSERT_FALSE(trace.ok()) << message;
    EXPECT_EQ(trace.error().code(), ErrorCode::kCorrupt);
    EXPECT_NE(trace.error().message().find(message), std::string::npos)
        << trace.error().message();
  }
}

}  // namespace
}  // namespace ttrace::mesh_views_test
