// Index lines of rows that a router chose.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/trace/format.h"
#include "src/trace/index/index_line.h"
#include "src/trace/index/record_check.h"
#include "src/trace/testing/scratch_lines.h"

namespace ttrace::routed_line_test {
namespace {

RankMeta Meta() {
  RankMeta meta;
  meta.rank = 1;
  meta.world_size = 4;
  meta.mesh.dims = {{"ep", 2}, {"tp", 2}};
  meta.coordinate = {0, 1};
  return meta;
}

RecordFields Unchecked() {
  RecordFields record;
  record.rank = 1;
  record.id = {"mlp.experts.3", Role::kInput,  0, 0,
               "hidden_states", Pass::kForward};
  record.leg = "real";
  record.micro_batch = 0;
  record.dtype = DType::kF32;
  record.local_shape = {5, 4};
  record.placements = {{"tp", Shard{1}}};
  record.routed = RoutedRows{"mlp.router", "1", 3, "ep"};
  record.extent.offset = kSegmentHeaderBytes;
  return record;
}

RecordFields Checked() {
  RecordFields record = Unchecked();
  OrDie(CompleteRecord(Meta(), {32, 8}, record));
  return record;
}

Result<IndexLine> Decode(const std::string& lines) {
  return DecodeLines(Meta(), lines);
}

TEST(RoutedLine, IsWrittenExactlySoAndRoundTrips) {
  const std::string line = EncodeLines(Checked());
  EXPECT_NE(line.find(R"x("placements":"tp:Shard(1)",)x"
                      R"("routed":{"by":"mlp.router","arg":"1","expert":3,)"
                      R"("group":"ep"},"scale":[1,1],)"),
            std::string::npos)
      << line;
  const RecordFields back = std::get<RecordFields>(OrDie(Decode(line)));
  EXPECT_EQ(back.routed, Checked().routed);
  EXPECT_EQ(back.layout, Checked().layout);
  EXPECT_EQ(back.layout.global_shape(), (Shape{32, 8}));
  EXPECT_EQ(back.layout.dims[0].segments, (std::vector<Segment>{{0, 5}}));
  EXPECT_EQ(back.layout.dims[1].segments, (std::vector<Segment>{{4, 4}}));
}

TEST(RoutedLine, MoreOrNoRowsAreAQuestionForWhoHasTheMaps) {
  for (const int64_t rows : {0, 40}) {
    RecordFields record = Unchecked();
    record.local_shape = {rows, 4};
    ASSERT_TRUE(CompleteRecord(Meta(), {32, 8}, record).ok());
    EXPECT_TRUE(Decode(EncodeLines(record)).ok());
  }
}

TEST(RoutedLine, WhatContradictsTheFormatIsCorrupt) {
  const std::string line = EncodeLines(Checked());
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {R"("by":"mlp.router")", R"("by":1)"},
           {R"("by":"mlp.router",)", ""},
           {R"("arg":"1",)", ""},
           {R"("expert":3)", R"("expert":-1)"},
           {R"("expert":3)", R"("expert":"3")"},
           {R"(,"group":"ep")", ""},
           {R"("group":"ep")", R"("group":[0,1])"},
           {R"("routed":{)", R"("routed":null,"x":{)"},
           {R"("role":"input")", R"("role":"param")"},
           {R"("shape":[5,4])", R"("shape":[9223372036854775807,4])"},
       }) {
    std::string changed = line;
    const size_t at = changed.rfind(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    const Result<IndexLine> decoded = Decode(changed);
    ASSERT_FALSE(decoded.ok()) << to;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << to;
  }
}

TEST(RoutedLine, TheFirstDimensionIsNeitherCutNorTheBatchs) {
  const auto refused = [](const auto& change, const Shape& global = {32, 8}) {
    RecordFields record = Unchecked();
    change(&record);
    const Status status = CompleteRecord(Meta(), global, record);
    return !status.ok() && status.error().code() == ErrorCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](RecordFields*) {}));
  EXPECT_TRUE(refused([](RecordFields* r) {
    r->placements = {{"ep", Shard{0}}};
  }));
  EXPECT_TRUE(refused([](RecordFields* r) {
    r->rows = BatchRows{0, 0, 5, 32};
  }));
  EXPECT_TRUE(refused([](RecordFields* r) { r->routed->expert = -1; }));
  EXPECT_TRUE(refused([](RecordFields* r) { r->id.role = Role::kLoss; }));
  EXPECT_TRUE(refused([](RecordFields* r) { r->local_shape = {}; }, {}));
  EXPECT_TRUE(refused([](RecordFields* r) { r->local_shape = {}; }));
  EXPECT_TRUE(refused([](RecordFields*) {}, {int64_t{1} << 61, 8}));
  for (const Role role : {Role::kOutput, Role::kGradInput, Role::kGradOutput}) {
    EXPECT_FALSE(refused([role](RecordFields* r) { r->id.role = role; }));
  }
}

}  // namespace
}  // namespace ttrace::routed_line_test
