#include "src/trace/index/index_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "src/trace/format.h"
#include "src/trace/index/record_check.h"
#include "src/trace/testing/scratch_lines.h"

namespace ttrace::index_line_test {
namespace {

RankMeta Meta() {
  RankMeta meta;
  meta.rank = 3;
  meta.world_size = 4;
  meta.mesh.dims = {{"cp", 2}, {"tp", 2}};
  meta.coordinate = {1, 1};
  return meta;
}

RecordFields SomeRecord() {
  RecordFields record;
  record.rank = 3;
  record.sequence = 17;
  record.id = {"decoder.layers.0.mlp", Role::kGradInput, 1, 2,
               "hidden_states",        Pass::kBackward};
  record.leg = "fp32.noise.1";
  record.micro_batch = 5;
  record.dtype = DType::kBF16;
  record.local_shape = {2, 2, 8};
  record.placements = {{"cp", ZigzagShard{0}}, {"tp", Shard{0}}};
  record.scale = {1, 4};
  record.reduced_over = {"tp", "mb"};
  record.rows = BatchRows{1, 2, 2, 8};
  OrDie(CompleteRecord(Meta(), {8, 8, 8}, record));
  record.extent.segment = 2;
  record.extent.offset = kSegmentHeaderBytes + 5;
  record.extent.xxh3 = 0x0123456789abcdef;
  return record;
}

Result<IndexLine> Decode(const std::string& lines) {
  return DecodeLines(Meta(), lines);
}

std::string Replaced(std::string text, const std::string& from,
                     const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

TEST(IndexLine, OfARecordIsWrittenExactlySo) {
  EXPECT_EQ(
      EncodeLines(SomeRecord()),
      R"({"type":"spec","number":0,"fqn":"decoder.layers.0.mlp",)"
      R"("role":"grad_input","arg":"hidden_states","dtype":"bfloat16",)"
      R"("shape":[2,2,8],"global_shape":[8,8,8],)"
      R"x("placements":"cp:ZigzagShard(0) tp:Shard(0)","batch_dim":1,)x"
      R"("scale":[1,4],"reduced_over":["tp","mb"]})"
      "\n"
      R"({"type":"record","sequence":17,"spec":0,"leg":"fp32.noise.1",)"
      R"("iteration":1,"call":2,"pass":"backward","micro_batch":5,"row":2,)"
      R"("segment":2,"offset":262149,"bytes":64,"xxh3":"0123456789abcdef"})"
      "\n");
}

// As formats 1 to 3 have it.
constexpr char kWholeRecord[] =
    R"({"type":"record","sequence":17,"leg":"fp32.noise.1",)"
    R"("fqn":"decoder.layers.0.mlp","role":"grad_input","iteration":1,)"
    R"("call":2,"arg":"hidden_states","pass":"backward","micro_batch":5,)"
    R"("dtype":"bfloat16","shape":[2,2,8],"global_shape":[8,8,8],)"
    R"x("placements":"cp:ZigzagShard(0) tp:Shard(0)","rows":[1,2,2,8],)x"
    R"("scale":[1,4],"reduced_over":["tp","mb"],"segment":2,)"
    R"("offset":262149,"bytes":64,"xxh3":"0123456789abcdef"})";

TEST(IndexLine, OfAnOlderFormatSaysAllOfItsRecord) {
  const RecordFields old = std::get<RecordFields>(OrDie(Decode(kWholeRecord)));
  EXPECT_EQ(EncodeLines(old), EncodeLines(SomeRecord()));
  EXPECT_EQ(old.layout, SomeRecord().layout);
  EXPECT_EQ(old.rows, SomeRecord().rows);
  EXPECT_EQ(old.grid, SomeRecord().grid);
  for (const std::string rows :
       {R"("rows":[1,2,2])", R"("rows":[9,2,2,8])", R"("rows":[1,7,2,8])",
        R"("rows":[1,2,3,8])", R"("rows":[1,2,2,9])", R"("rows":null)",
        R"("other":0)"}) {
    const Result<IndexLine> decoded =
        Decode(Replaced(kWholeRecord, R"("rows":[1,2,2,8])", rows));
    ASSERT_FALSE(decoded.ok()) << rows;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << rows;
  }
  for (const char* key : {"sequence",    "leg",    "fqn",   "role",
                          "iteration",   "call",   "arg",   "pass",
                          "micro_batch", "dtype",  "shape", "global_shape",
                          "placements",  "rows",   "scale", "reduced_over",
                          "segment",     "offset", "bytes", "xxh3"}) {
    const std::string quoted = std::string("\"") + key + "\":";
    EXPECT_FALSE(Decode(Replaced(kWholeRecord, quoted, "\"other\":")).ok())
        << key;
  }
}

TEST(IndexLine, OfARecordRefersToASpecBeforeIt) {
  const std::string lines = EncodeLines(SomeRecord());
  const std::string spec = lines.substr(0, lines.find('\n') + 1);
  const std::string record = lines.substr(spec.size());
  const auto message = [](const std::string& text) {
    const Result<IndexLine> decoded = Decode(text);
    EXPECT_FALSE(decoded.ok() || decoded.error().code() != ErrorCode::kCorrupt);
    return decoded.ok() ? "" : decoded.error().message();
  };
  EXPECT_EQ(message(record), "field 'spec' is 0, which is none before it");
  EXPECT_EQ(message(Replaced(lines, R"("spec":0)", R"("spec":1)")),
            "field 'spec' is 1, which is none before it");
  EXPECT_EQ(message(spec + spec), "field 'number' is 0 after 1 specs");
  EXPECT_EQ(message(Replaced(spec, R"("number":0)", R"("number":1)")),
            "field 'number' is 1 after 0 specs");
  const std::string second = Replaced(
      Replaced(spec, R"("number":0)", R"("number":1)"), "layers.0", "layers.1");
  const RecordFields of_second = std::get<RecordFields>(OrDie(
      Decode(spec + second + Replaced(record, R"("spec":0)", R"("spec":1)"))));
  EXPECT_EQ(of_second.id.fqn, "decoder.layers.1.mlp");
  const RecordFields of_first =
      std::get<RecordFields>(OrDie(Decode(spec + second + record)));
  EXPECT_EQ(of_first.id.fqn, "decoder.layers.0.mlp");
}

TEST(IndexLine, OfARecordRoundTrips) {
  const RecordFields record = SomeRecord();
  const RecordFields back =
      std::get<RecordFields>(OrDie(Decode(EncodeLines(record))));
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.sequence, record.sequence);
  EXPECT_EQ(back.id, record.id);
  EXPECT_EQ(back.leg, record.leg);
  EXPECT_EQ(back.micro_batch, record.micro_batch);
  EXPECT_EQ(back.dtype, record.dtype);
  EXPECT_EQ(back.local_shape, record.local_shape);
  EXPECT_EQ(back.placements, record.placements);
  EXPECT_EQ(back.scale, record.scale);
  EXPECT_EQ(back.reduced_over, record.reduced_over);
  EXPECT_EQ(back.rows, record.rows);
  EXPECT_EQ(back.layout, record.layout);
  EXPECT_EQ(back.extent.segment, 2);
  EXPECT_EQ(back.extent.offset, record.extent.offset);
  EXPECT_EQ(back.extent.bytes, 64);
  EXPECT_EQ(back.extent.xxh3, record.extent.xxh3);
}

TEST(IndexLine, OfWhatWasComparedInPlaceRoundTrips) {
  RecordFields record = SomeRecord();
  record.payload = KeptComparison{{"real", "fp32"}, {}};
  record.extent.bytes = 60;
  const std::string line = EncodeLines(record);
  EXPECT_NE(line.find(R"(,"compared_with":["real","fp32"],"segment":2,)"),
            std::string::npos)
      << line;
  const RecordFields back = std::get<RecordFields>(OrDie(Decode(line)));
  EXPECT_EQ(back.payload, record.payload);
  EXPECT_EQ(back.extent.bytes, 60);
  EXPECT_FALSE(back.holds_values());

  // A replay of it has the same bytes.
  SetSameAs(0, &record.payload);
  EXPECT_TRUE(Decode(EncodeLines(record)).ok());
  // The longest that a reader takes fits what a writer leaves room for.
  const Leg longest(std::string(kMaxComparedLegBytes, '\x01'));
  record.payload = KeptComparison{ComparedWith(kMaxComparedLegs, longest), {}};
  EXPECT_TRUE(Decode(EncodeLines(record)).ok());

  const std::string legs = R"(["real","fp32"])";
  for (const std::string other :
       {R"([])", R"("real")", R"([1])", R"([""])", R"({})", R"(null)",
        R"(["1","2","3","4","5"])", R"(["123456789012345678901234567890123"])",
        R"(["real"],"measured_against":3)", R"(["real"],"summary":"digest")"}) {
    const Result<IndexLine> decoded = Decode(Replaced(line, legs, other));
    ASSERT_FALSE(decoded.ok()) << other;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << other;
  }
  EXPECT_FALSE(Decode(Replaced(line, "\"bytes\":60", "\"bytes\":64")).ok())
      << "as many as the values";
}

TEST(IndexLine, OtherKindsRoundTrip) {
  const NoteLine note = std::get<NoteLine>(
      OrDie(Decode(OrDie(EncodeNote({"leg_skipped", "{ \"a\": [1, 2.5] }"})))));
  EXPECT_EQ(note.kind, "leg_skipped");
  EXPECT_EQ(note.json, R"({"a":[1,2.5]})");
  const SealLine seal =
      std::get<SealLine>(OrDie(Decode(OrDie(EncodeSeal({4, "noise.2"})))));
  EXPECT_EQ(seal.iteration, 4);
  EXPECT_EQ(seal.leg, "noise.2");
  const EndLine end = std::get<EndLine>(
      OrDie(Decode(OrDie(EncodeEnd({false, "disk \"full\"\n"})))));
  EXPECT_FALSE(end.complete);
  EXPECT_EQ(end.reason, "disk \"full\"\n");
}

TEST(IndexLine, AnyUtf8NameRoundTripsOnOneLine) {
  for (const std::string& name :
       {std::string("../../etc/passwd"), std::string("a\0b", 3),
        std::string("line\nbreak\r\t\x01\x1f\x7f"), std::string("\"}],{\\"),
        std::string("\xF0\x9F\x94\xA5 \xC3\xA9"), std::string(),
        std::string(300'000, 'x')}) {
    RecordFields record = SomeRecord();
    record.id.fqn = name;
    record.id.arg = name;
    const std::string line = EncodeLines(record);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 2);
    const RecordFields back = std::get<RecordFields>(OrDie(Decode(line)));
    EXPECT_EQ(back.id.fqn, name);
    EXPECT_EQ(back.id.arg, name);
  }
}

TEST(IndexLine, NamesThatNoReaderWouldTakeAreNotWritten) {
  for (const std::string& name :
       {std::string("\xFF"), std::string("\xC3"), std::string("\xED\xA0\x80"),
        std::string(2 << 20, 'x'), std::string(300'000, '\x01')}) {
    RecordFields record = SomeRecord();
    record.id.fqn = name;
    const Result<std::string> line = EncodeSpec({0, record.spec()});
    ASSERT_FALSE(line.ok());
    EXPECT_EQ(line.error().code(), ErrorCode::kInvalidArgument);
    record.leg = Leg(name);
    EXPECT_FALSE(EncodeRecordStart(record, 0).ok());
  }
  EXPECT_FALSE(EncodeNote({"", "{}"}).ok());
  EXPECT_FALSE(EncodeNote({"kind", "[]"}).ok());
  EXPECT_FALSE(EncodeNote({"kind", "{"}).ok());
  EXPECT_FALSE(EncodeNote({"\xFF", "{}"}).ok());
  EXPECT_FALSE(EncodeNote({"kind", std::string(100, '[')}).ok());
  EXPECT_FALSE(EncodeSeal({-1, "real"}).ok());
}

TEST(IndexLine, UnknownKeysAreIgnored) {
  const std::string line = Replaced(EncodeLines(SomeRecord()), "{\"type\"",
                                    R"({"later":{"a":[1]},"type")");
  EXPECT_TRUE(Decode(line).ok());
}

TEST(IndexLine, RowsAreOptional) {
  RecordFields record = SomeRecord();
  record.rows.reset();
  record.local_shape = {2, 8, 8};
  OrDie(CompleteRecord(Meta(), {8, 8, 8}, record));
  EXPECT_EQ(EncodeLines(record).find("row"), std::string::npos);
  EXPECT_EQ(EncodeLines(record).find("batch_dim"), std::string::npos);
  EXPECT_EQ(std::get<RecordFields>(OrDie(Decode(EncodeLines(record)))).rows,
            std::nullopt);
}

// A part of what cp and tp leave: [4, 8] of a parameter of [8, 16].
RecordFields BoxedRecord() {
  RecordFields record = SomeRecord();
  record.rows.reset();
  record.placements = {{"cp", RaggedShard{}}, {"tp", Shard{0}}};
  record.box = Box{{1, 2, 4}, {0, 16, 16}};
  record.local_shape = {2, 16};
  OrDie(CompleteRecord(Meta(), {8, 16}, record));
  return record;
}

TEST(IndexLine, OfABoxRoundTrips) {
  const std::string line = EncodeLines(BoxedRecord());
  EXPECT_NE(line.find(R"x("placements":"cp:RaggedShard tp:Shard(0)",)x"
                      R"("box":[[1,2,4],[0,16,16]],"scale")"),
            std::string::npos)
      << line;
  const RecordFields back = std::get<RecordFields>(OrDie(Decode(line)));
  EXPECT_EQ(back.box, BoxedRecord().box);
  EXPECT_EQ(back.placements, BoxedRecord().placements);
  EXPECT_EQ(back.layout.dims[0].segments, (std::vector<Segment>{{5, 2}}));
  EXPECT_EQ(back.layout, BoxedRecord().layout);
  EXPECT_EQ(EncodeLines(back), line);
  EXPECT_EQ(EncodeLines(SomeRecord()).find("box"), std::string::npos);

  RecordFields scalar = BoxedRecord();
  scalar.placements = {{"cp", RaggedShard{}}};
  scalar.box = Box{};
  scalar.local_shape = {};
  OrDie(CompleteRecord(Meta(), {}, scalar));
  EXPECT_EQ(std::get<RecordFields>(OrDie(Decode(EncodeLines(scalar)))).box,
            Box{});
}

TEST(IndexLine, ABoxThatContradictsTheRecordIsCorrupt) {
  const std::string line = EncodeLines(BoxedRecord());
  const std::string box = R"("box":[[1,2,4],[0,16,16]])";
  const std::vector<std::pair<std::string, std::string>> changes = {
      {box, R"("other":0)"},
      {box, R"("box":null)"},
      {box, R"("box":{})"},
      {box, R"("box":[])"},
      {box, R"("box":[[1,2,4]])"},
      {box, R"("box":[[1,2,4],[0,16,16],[0,1,1]])"},
      {box, R"("box":[[1,2,4],16])"},
      {box, R"("box":[[1,2,4],[0,16]])"},
      {box, R"("box":[[1,2,4],[0,16,16,0]])"},
      {box, R"("box":[["1",2,4],[0,16,16]])"},
      {box, R"("box":[[1,2.0,4],[0,16,16]])"},
      {box, R"("box":[[1,2,null],[0,16,16]])"},
      {box, R"("box":[[1,3,4],[0,16,16]])"},
      {box, R"("box":[[3,2,4],[0,16,16]])"},
      {box, R"("box":[[-1,2,4],[0,16,16]])"},
      {box, R"("box":[[1,2,8],[0,16,16]])"},
      {box, R"("box":[[1,-2,4],[0,16,16]])"},
      {box, R"("box":[[9223372036854775807,2,4],[0,16,16]])"},
      {box, R"("box":[[9223372036854775808,2,4],[0,16,16]])"},
      {R"("shape":[2,16])", R"("shape":[4,16])"},
      {R"("global_shape":[8,16])", R"("global_shape":[16,16])"},
      {R"(cp:RaggedShard)", R"(cp:Replicate)"},
      {R"(cp:RaggedShard)", R"(mb:RaggedShard)"},
      {R"(cp:RaggedShard)", R"(ep:RaggedShard)"},
      {R"(cp:RaggedShard)", R"(cp:RaggedShard(0))"},
      {R"(cp:RaggedShard)", R"(tp:RaggedShard)"},
  };
  for (const auto& [from, to] : changes) {
    const Result<IndexLine> decoded = Decode(Replaced(line, from, to));
    ASSERT_FALSE(decoded.ok()) << to;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << to;
  }
  std::string many = "[0,1,1]";
  for (int i = 0; i < 70; ++i) many += ",[0,1,1]";
  const Result<IndexLine> longer =
      Decode(Replaced(line, box, R"("box":[)" + many + "]"));
  ASSERT_FALSE(longer.ok());
  EXPECT_NE(longer.error().message().find("too long"), std::string::npos);
  // And a box where nothing is ragged.
  EXPECT_FALSE(Decode(Replaced(EncodeLines(SomeRecord()), R"("scale")",
                               R"("box":[[0,2,2],[0,2,2],[0,8,8]],"scale")"))
                   .ok());
}

TEST(IndexLine, NumbersHaveRoomInATable) {
  const std::string line = EncodeLines(SomeRecord());
  const std::string sequence = R"("sequence":17)";
  const std::string offset = R"("offset":262149)";
  for (const auto& [from, to, fits] :
       std::vector<std::tuple<std::string, std::string, bool>>{
           {sequence, R"("sequence":4294967294)", true},
           {sequence, R"("sequence":4294967295)", false},
           {offset, R"("offset":17592186044415)", true},
           {offset, R"("offset":17592186044416)", false}}) {
    const Result<IndexLine> decoded = Decode(Replaced(line, from, to));
    ASSERT_EQ(decoded.ok(), fits) << to;
    if (fits) continue;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << to;
  }
}

TEST(IndexLine, EveryKeyIsNeeded) {
  const std::string line = EncodeLines(SomeRecord());
  for (const char* key :
       {"type",       "number",       "sequence",  "spec",         "leg",
        "fqn",        "role",         "iteration", "call",         "arg",
        "pass",       "micro_batch",  "dtype",     "shape",        "row",
        "placements", "global_shape", "scale",     "reduced_over", "segment",
        "offset",     "bytes",        "xxh3"}) {
    const std::string quoted = std::string("\"") + key + "\":";
    const Result<IndexLine> decoded =
        Decode(Replaced(line, quoted, "\"other\":"));
    ASSERT_FALSE(decoded.ok()) << key;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << key;
  }
}

TEST(IndexLine, ValuesThatContradictTheFormatAreCorrupt) {
  const std::string line = EncodeLines(SomeRecord());
  const std::vector<std::pair<std::string, std::string>> changes = {
      {R"("type":"record")", R"("type":"picture")"},
      {R"("type":"record")", R"("type":1)"},
      {R"("sequence":17)", R"("sequence":-1)"},
      {R"("sequence":17)", R"("sequence":1.5)"},
      {R"("sequence":17)", R"("sequence":"17")"},
      {R"("sequence":17)", R"("sequence":99999999999999999999)"},
      {R"("leg":"fp32.noise.1")", R"("leg":"")"},
      {R"("leg":"fp32.noise.1")", R"("leg":null)"},
      {R"("role":"grad_input")", R"("role":"grad")"},
      {R"("pass":"backward")", R"("pass":"sideways")"},
      {R"("iteration":1)", R"("iteration":2147483648)"},
      {R"("call":2)", R"("call":-2)"},
      {R"("micro_batch":5)", R"("micro_batch":-2)"},
      {R"("dtype":"bfloat16")", R"("dtype":"float7")"},
      {R"("dtype":"bfloat16")", R"("dtype":"float32")"},
      {R"("shape":[2,2,8])", R"("shape":[2,2,9])"},
      {R"("shape":[2,2,8])", R"("shape":[2,-2,8])"},
      {R"("shape":[2,2,8])", R"("shape":[2,2])"},
      {R"("shape":[2,2,8])", R"("shape":[2,2,"8"])"},
      {R"("shape":[2,2,8])", R"("shape":2)"},
      {R"("global_shape":[8,8,8])", R"("global_shape":[8,8,9])"},
      {R"("global_shape":[8,8,8])",
       R"("global_shape":[8,8,9223372036854775807])"},
      {R"(tp:Shard(0))", R"(tp:Shard(7))"},
      {R"(tp:Shard(0))", R"(ep:Shard(0))"},
      {R"(tp:Shard(0))", R"(tp:Shatter(0))"},
      {R"(tp:Shard(0))", R"(tp:StridedShard(0,2147483647))"},
      {R"("batch_dim":1)", R"("batch_dim":-1)"},
      {R"("batch_dim":1)", R"("batch_dim":0)"},
      {R"("batch_dim":1)", R"("batch_dim":3)"},
      {R"("batch_dim":1)", R"("batch_dim":64)"},
      {R"("batch_dim":1)", R"("batch_dim":null)"},
      {R"("batch_dim":1)", R"("other":1)"},
      {R"("row":2)", R"("row":7)"},
      {R"("row":2)", R"("row":-1)"},
      {R"("row":2)", R"("row":9223372036854775807)"},
      {R"("row":2)", R"("row":null)"},
      {R"("spec":0)", R"("spec":-1)"},
      {R"("spec":0)", R"("spec":9223372036854775807)"},
      {R"("spec":0)", R"("spec":"0")"},
      {R"("number":0)", R"("number":null)"},
      {R"("scale":[1,4])", R"("scale":[1,0])"},
      {R"("scale":[1,4])", R"("scale":[1,4,2])"},
      {R"("reduced_over":["tp","mb"])", R"("reduced_over":["tp","tp"])"},
      {R"("reduced_over":["tp","mb"])", R"("reduced_over":["xx"])"},
      {R"("reduced_over":["tp","mb"])", R"("reduced_over":[1])"},
      {R"("segment":2)", R"("segment":-1)"},
      {R"("segment":2)", R"("segment":1000000)"},
      {R"("offset":262149)", R"("offset":8)"},
      {R"("bytes":64)", R"("bytes":63)"},
      {R"("xxh3":"0123456789abcdef")", R"("xxh3":"0123456789abcde")"},
      {R"("xxh3":"0123456789abcdef")", R"("xxh3":"0123456789abcdeg")"},
      {R"("xxh3":"0123456789abcdef")", R"("xxh3":"-123456789abcdef")"},
      {R"({"type")", R"(["type")"},
  };
  for (const auto& [from, to] : changes) {
    const Result<IndexLine> decoded = Decode(Replaced(line, from, to));
    ASSERT_FALSE(decoded.ok()) << to;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << to;
  }
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("null"),
        std::string("[]"), std::string("{\"type\":\"end\",\"complete\":1}"),
        std::string(R"({"type":"note","kind":"","data":{}})"),
        std::string(R"({"type":"note","kind":"k","data":[]})"),
        std::string(R"({"type":"seal","iteration":0,"leg":""})"),
        std::string(100'000, '['), std::string(100'000, '{'),
        std::string("\0\0\0\0", 4), std::string(2 << 20, ' ')}) {
    EXPECT_FALSE(Decode(text).ok());
  }
}

TEST(IndexLine, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return R"({"type":"note","kind":"k","data":{"a":)" +
           std::string(depth, '[') + std::string(depth, ']') + "}}";
  };
  EXPECT_TRUE(Decode(nested(20)).ok());
  EXPECT_FALSE(Decode(nested(100)).ok());
}

}  // namespace
}  // namespace ttrace::index_line_test
