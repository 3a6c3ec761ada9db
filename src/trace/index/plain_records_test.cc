// What is read without a parser means what the parser's reader says it does,
// and what is wrong is wrong with the same words.

#include "src/trace/index/plain_records.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "src/trace/index/index_chain.h"
#include "src/trace/index/plain_line.h"
#include "src/trace/rank_reader.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::plain_records_test {
namespace {

constexpr int kRank = 1;

// Specs of several kinds, some of them twice; rows of a batch, bytes that are
// there already, legs.
void WriteTrace(const std::string& folder) {
  OrDie(CreateTraceFolder(folder, "{}", true));
  const auto writer = OpenRank(folder, kRank, 2);
  RecordSpec cut = PlainSpec("layers.0.mlp", DType::kBF16, {4, 8});
  cut.local_shape = {4, 4};
  cut.placements = {{"tp", Shard{1}}};
  cut.batch_dim = 0;
  cut.global_shape = {16, 8};
  RecordSpec partial = PlainSpec("layers.0.\"odd\"", DType::kF32, {3});
  partial.placements = {{"tp", Partial{}}, {"mb", Partial{}}};
  partial.reduced_over = {};
  partial.role = Role::kGradLocal;
  std::vector<RecordSpec> specs = {cut, partial};
  specs.push_back(PlainSpec("layers.0.norm", DType::kF32, {}));
  specs.push_back(PlainSpec("layers.0.bias", DType::kF32, {2048}));
  for (RecordSpec spec : std::vector<RecordSpec>(specs)) {
    spec.fqn = "layers.1." + spec.fqn.substr(9);
    specs.push_back(spec);
  }
  std::vector<float> values(2048, 1.5F);
  for (const char* leg : {"real", "replay", "isolated.noise.1"}) {
    for (int micro_batch = -1; micro_batch < 2; ++micro_batch) {
      for (const RecordSpec& spec : specs) {
        Occurrence occurrence = RealOccurrence();
        occurrence.leg = leg;
        occurrence.micro_batch = micro_batch;
        occurrence.row_begin = 4 * (micro_batch + 1);
        if (leg == std::string("real")) values[0] += 1.0F;
        std::vector<int64_t> strides(spec.local_shape.size(), 1);
        if (strides.size() > 1) strides[0] = spec.local_shape[1];
        const auto bytes = std::as_bytes(std::span(values));
        if (spec.local_shape == Shape{2048}) {
          // Of so many bytes that they are written once.
          const RankMeta meta = TensorParallelMeta(kRank, 2);
          RecordFields record = OrDie(
              MakeRecord(meta, spec, OrDie(CheckSpec(meta, spec)), occurrence));
          OrDie(writer->Restate(&record, bytes));
          continue;
        }
        OrDie(writer->Append(spec, occurrence, {bytes.data(), strides}));
      }
    }
    OrDie(writer->Seal(0, leg));
  }
  OrDie(writer->Close(true, ""));
}

class PlainRecordsTest : public testing::Test {
 protected:
  PlainRecordsTest() {
    WriteTrace(folder_.path());
    meta_ = FileText(rank_folder() + "/meta.json");
    std::string text = FileText(index_path());
    while (!text.empty()) {
      const size_t end = text.find('\n');
      written_.push_back(text.substr(0, end));
      text.erase(0, end + 1);
      // Without its chain, which is as long as this.
      lines_.push_back(written_.back());
      lines_.back().resize(lines_.back().size() - IndexChain::kAddedBytes);
      lines_.back().back() = '}';
    }
  }

  std::string rank_folder() const { return folder_ / "rank-00001.r0"; }
  std::string index_path() const { return rank_folder() + "/index.jsonl"; }

  // The rank with these lines, chained. `plainly`: as they are; else with a
  // space each, which means nothing and leaves no line in the plain form.
  Result<std::unique_ptr<RankContents>> Read(
      const std::vector<std::string>& lines, bool plainly) const {
    IndexChain chain(meta_);
    std::string text;
    for (std::string line : lines) {
      if (!plainly && line.starts_with('{')) line.insert(1, " ");
      line += '\n';
      if (line.ends_with("}\n")) chain.Add(line);
      text += line;
    }
    std::filesystem::remove(index_path());
    SetFileText(index_path(), text);
    return ReadRank(rank_folder(), kRank);
  }

  ScratchFolder folder_;
  std::string meta_;
  std::vector<std::string> written_;
  std::vector<std::string> lines_;
};

auto AllOf(const RecordFields& r) {
  return std::tuple(r.rank, r.sequence, r.id, r.leg, r.micro_batch, r.dtype,
                    r.local_shape, r.placements, r.grid, r.scale.numerator,
                    r.scale.denominator, r.reduced_over, r.layout, r.same_as(),
                    r.number);
}

void ExpectEqual(const RecordTable& a, const RecordTable& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const RecordFields x = a[i].fields();
    const RecordFields y = b[i].fields();
    EXPECT_TRUE(AllOf(x) == AllOf(y)) << i;
    EXPECT_TRUE(x.extent == y.extent && x.rows == y.rows) << i;
    EXPECT_TRUE(x.holds_values() && y.holds_values()) << i;
  }
}

TEST_F(PlainRecordsTest, TakeWhatOurWriterWrites) {
  size_t records = 0;
  size_t specs = 0;
  size_t same = 0;
  for (const std::string& line : written_) {
    const auto record = ReadPlainRecordLine(line);
    const auto spec = ReadPlainSpecLine(line);
    EXPECT_EQ(record.has_value(), line.starts_with(R"({"type":"record")"))
        << line;
    // Names with a quote are written with an escape.
    EXPECT_EQ(spec.has_value(), line.starts_with(R"({"type":"spec")") &&
                                    line.find('\\') == std::string::npos)
        << line;
    records += record.has_value();
    specs += spec.has_value();
    same += record && record->same_as;
  }
  EXPECT_EQ(records, 72U);
  EXPECT_EQ(specs, 6U);
  EXPECT_GT(same, 8U);

  const auto read = OrDie(ReadRank(rank_folder(), kRank));
  KnownSpecs known;
  RecordTable table;
  PlainRecords plain(read->trace.meta, known, &table);
  EXPECT_FALSE(plain.Read(written_[6])) << "a record before its spec";
  for (const std::string& line : written_) {
    if (line.starts_with(R"({"type":"spec")")) {
      // The kinds come in the order of WriteTrace.
      const RecordSpec spec = read->records[known.size()].fields().spec();
      known.Add(spec, OrDie(CheckSpec(read->trace.meta, spec)));
    }
    if (!ReadPlainRecordLine(line)) continue;
    const auto row = plain.Read(line);
    ASSERT_TRUE(row.has_value()) << line;
    table.Append(row->parts, row->own);
  }
  ExpectEqual(table, read->records);
}

TEST_F(PlainRecordsTest, AreTheDecodersRecords) {
  const auto plain = OrDie(Read(lines_, true));
  const auto decoded = OrDie(Read(lines_, false));
  EXPECT_EQ(plain->records.size(), 72U);
  ExpectEqual(plain->records, decoded->records);
}

// Where the fields of a line begin and end: ',"key":value' each, of the first
// object. Values with commas are cut, which is as good as any other change.
std::vector<std::pair<size_t, size_t>> FieldsOf(const std::string& line) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t at = line.find(",\""); at != std::string::npos;) {
    const size_t next = line.find(",\"", at + 1);
    out.emplace_back(at, (next == std::string::npos ? line.size() - 1 : next));
    at = next;
  }
  return out;
}

class Mutation {
 public:
  explicit Mutation(uint32_t seed) : random_(seed) {}

  void Apply(std::vector<std::string>* lines) {
    const size_t at = Below(lines->size());
    std::string& line = (*lines)[at];
    const auto fields = FieldsOf(line);
    switch (Below(9)) {
      case 0:
        line[Below(line.size())] = Byte();
        return;
      case 1:
        line.erase(Below(line.size()), 1 + Below(3));
        return;
      case 2:
        line.insert(Below(line.size()), 1, Byte());
        return;
      case 3:
        lines->erase(lines->begin() + static_cast<std::ptrdiff_t>(at));
        return;
      case 4:
        std::swap(line, (*lines)[Below(lines->size())]);
        return;
      default:
        if (fields.empty()) return;
        return ChangeField(fields[Below(fields.size())],
                           fields[Below(fields.size())], &line);
    }
  }

 private:
  size_t Below(size_t count) { return random_() % count; }
  char Byte() {
    constexpr std::string_view kBytes =
        "0123456789abcfABF\"\\{}[],:-+. \t\x7f\xc3\xa9_";
    return Below(8) == 0 ? static_cast<char>(random_() % 256)
                         : kBytes[Below(kBytes.size())];
  }

  void ChangeField(std::pair<size_t, size_t> one,
                   std::pair<size_t, size_t> other, std::string* line) {
    const std::string field = line->substr(one.first, one.second - one.first);
    const size_t value = field.find(':') + 1;
    if (value == 0) return;
    switch (Below(4)) {
      case 0:  // again, or in another place
        line->insert(other.first, field);
        return;
      case 1:
        line->erase(one.first, field.size());
        line->insert(std::min(other.first, line->size() - 1), field);
        return;
      case 2:
        line->erase(one.first, field.size());
        return;
      default:
        line->replace(one.first + value, field.size() - value, Value());
    }
  }

  std::string Value() {
    static const std::vector<std::string> kValues = {
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "8",
        "12",
        "13",
        "16",
        "-1",
        "-2",
        "-0",
        "00",
        "01",
        "+1",
        "1.0",
        "1e0",
        "2147483647",
        "2147483648",
        "4294967294",
        "4294967295",
        "999999",
        "1000000",
        "262143",
        "262144",
        "262208",
        "17592186044415",
        "17592186044416",
        "999999999999999999",
        "1000000000000000000",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "null",
        "true",
        "[]",
        "{}",
        "\"\"",
        "\"real\"",
        "\"replay\"",
        "\"re\\u0061l\"",
        "\"\xc3\xa9\"",
        "\"\xff\"",
        "\"forward\"",
        "\"backward\"",
        "\"sideways\"",
        "\"0123456789ABCDEF\"",
        "\"0123456789abcdef\"",
        "\"0123456789abcde\"",
        "\"-123456789abcdef\"",
    };
    return kValues[Below(kValues.size())];
  }

  std::mt19937 random_;
};

TEST_F(PlainRecordsTest, AreAcceptedAndRefusedAsTheDecoderDoes) {
  int accepted = 0;
  std::set<std::string> errors;
  for (uint32_t seed = 0; seed < 800; ++seed) {
    std::vector<std::string> lines = lines_;
    Mutation mutation(seed);
    for (uint32_t n = 0; n <= seed % 3; ++n) mutation.Apply(&lines);
    const auto plain = Read(lines, true);
    const auto decoded = Read(lines, false);
    ASSERT_EQ(plain.ok(), decoded.ok())
        << seed << ": " << (plain.ok() ? decoded : plain).error().message();
    if (!plain.ok()) {
      EXPECT_EQ(plain.error().code(), decoded.error().code()) << seed;
      EXPECT_EQ(plain.error().message(), decoded.error().message()) << seed;
      errors.insert(plain.error().message());
      continue;
    }
    ++accepted;
    SCOPED_TRACE(seed);
    ExpectEqual((*plain)->records, (*decoded)->records);
    EXPECT_EQ((*plain)->trace.dropped_lines, (*decoded)->trace.dropped_lines);
  }
  EXPECT_GT(accepted, 40);
  EXPECT_GT(errors.size(), 80U);
}

TEST_F(PlainRecordsTest, ALineOfAnotherRankIsNoticed) {
  // Every byte of it, through the chain.
  for (size_t i = 0; i < written_.size(); ++i) {
    if (!ReadPlainRecordLine(written_[i])) continue;
    std::vector<std::string> changed = written_;
    const size_t digit = changed[i].find(R"("xxh3":")") + 8;
    changed[i][digit] = changed[i][digit] == '0' ? '1' : '0';
    std::string text;
    for (const std::string& line : changed) text += line + "\n";
    std::filesystem::remove(index_path());
    SetFileText(index_path(), text);
    const auto read = ReadRank(rank_folder(), kRank);
    ASSERT_FALSE(read.ok());
    const std::string& said = read.error().message();
    EXPECT_TRUE(said.find("not what was written there") != std::string::npos ||
                said.find("which is no such record") != std::string::npos)
        << said;
    EXPECT_NE(said.find("line " + std::to_string(i + 1)), std::string::npos);
  }
}

}  // namespace
}  // namespace ttrace::plain_records_test
