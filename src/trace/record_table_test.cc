#include "src/trace/record_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/trace/format.h"
#include "src/trace/record_list.h"

namespace ttrace::record_table_test {
namespace {

// With something in every field; `n` tells them apart.
RecordFields Fields(int n) {
  RecordFields out;
  out.rank = n / 4;
  out.sequence = n;
  out.id = {"layers." + std::to_string(n % 3),
            Role::kGradInput,
            n % 2,
            1,
            "hidden",
            Pass::kBackward};
  out.leg = n % 5 == 0 ? "real" : "noise.1";
  out.micro_batch = n % 2;
  out.dtype = DType::kBF16;
  out.local_shape = {2, 8};
  out.placements = {{"tp", Shard{1}}, {"dp", Partial{}}};
  out.grid = n % 2;
  out.scale = {1, n % 2 + 1};
  out.reduced_over = {"tp"};
  out.rows = BatchRows{0, 2 * (n % 2), 2, 4};
  out.box = Box{{0, 2, 2}};
  out.routed = RoutedRows{"router", "1", n % 3, "experts"};
  out.layout.dims = {{{{2 * (n % 2), 2}}, 4}, {{{0, 8}}, 16}};
  out.extent = {n, kSegmentHeaderBytes + n, 32,
                0x9e3779b97f4a7c15U * static_cast<uint64_t>(n)};
  return out;
}

void ExpectSame(const RecordFields& got, const RecordFields& want) {
  EXPECT_EQ(got.rank, want.rank);
  EXPECT_EQ(got.sequence, want.sequence);
  EXPECT_EQ(got.id, want.id);
  EXPECT_EQ(got.leg, want.leg);
  EXPECT_EQ(got.micro_batch, want.micro_batch);
  EXPECT_EQ(got.dtype, want.dtype);
  EXPECT_EQ(got.local_shape, want.local_shape);
  EXPECT_EQ(got.placements, want.placements);
  EXPECT_EQ(got.grid, want.grid);
  EXPECT_EQ(got.scale, want.scale);
  EXPECT_EQ(got.reduced_over, want.reduced_over);
  EXPECT_EQ(got.rows, want.rows);
  EXPECT_EQ(got.box, want.box);
  EXPECT_EQ(got.routed, want.routed);
  EXPECT_EQ(got.layout, want.layout);
  EXPECT_EQ(got.extent, want.extent);
  EXPECT_EQ(got.payload, want.payload);
}

TEST(RecordTable, GivesBackEveryField) {
  RecordTable table;
  std::vector<RecordFields> all;
  for (int n = 0; n < 9000; ++n) {  // more than a block
    RecordFields one = Fields(n);
    if (n % 7 == 1) one.payload = KeptValues{n - 1};
    if (n % 7 == 2) {
      one.payload = KeptDifference{n - 1};
      one.extent.bytes = 8 + n % 3;
    }
    if (n % 7 == 3) {
      KeptSummary summary;
      summary.kind = n % 2 == 0 ? Summary::kDigest : Summary::kSketch;
      if (n % 14 == 3) summary.same_as = 0;
      one.payload = summary;
      one.extent.bytes = 16;
    }
    all.push_back(one);
    table.Append(one);
  }
  ASSERT_EQ(table.size(), all.size());
  for (size_t n = 0; n < all.size(); ++n) {
    const Record record = table[n];
    ExpectSame(record.fields(), all[n]);
    EXPECT_EQ(record.holds_values(), all[n].holds_values());
    EXPECT_EQ(record.number(), static_cast<int64_t>(n));
  }
  EXPECT_EQ(table.id_count(), 6U);
}

TEST(RecordTable, HoldsTheLargestThatARowHasRoomFor) {
  RecordTable table;
  RecordFields one = Fields(1);
  one.rank = kMaxWorldSize - 1;
  one.sequence = kMaxSequence - 1;
  one.extent.segment = kMaxSegments - 1;
  one.extent.offset = kMaxOffset;
  one.extent.xxh3 = ~uint64_t{0};
  one.payload = KeptValues{kMaxSequence - 2};
  ExpectSame(table.Append(one).fields(), one);
}

// Forms that differ in one field only are two.
TEST(RecordTable, TellsApartWhatDiffersInOneField) {
  const std::vector<void (*)(RecordFields*)> changes = {
      [](RecordFields* r) { r->leg = "replay"; },
      [](RecordFields* r) { r->dtype = DType::kF16; },
      [](RecordFields* r) { r->placements[1].second = Replicate{}; },
      [](RecordFields* r) { r->placements[0].second = Shard{0}; },
      [](RecordFields* r) { r->grid = 7; },
      [](RecordFields* r) { r->scale.numerator = 3; },
      [](RecordFields* r) { r->reduced_over = {}; },
      [](RecordFields* r) { r->routed->group = "other"; },
      [](RecordFields* r) { r->routed.reset(); },
      [](RecordFields* r) { r->box.reset(); },
      [](RecordFields* r) { r->rows->global = 8; },
      [](RecordFields* r) { r->micro_batch = 5; },
      [](RecordFields* r) { r->layout.dims[1].segments[0].begin = 8; },
      [](RecordFields* r) { r->id.arg = "x"; },
      [](RecordFields* r) { r->id.call = 2; },
      [](RecordFields* r) { r->id.pass = Pass::kForward; },
  };
  RecordTable table;
  table.Append(Fields(1));
  for (const auto change : changes) {
    RecordFields one = Fields(1);
    change(&one);
    ExpectSame(table.Append(one).fields(), one);
  }
  ExpectSame(table[0].fields(), Fields(1));
}

TEST(RecordTable, FindsByRankAndSequence) {
  RecordTable table;
  for (int n = 0; n < 20; ++n) {
    RecordFields one = Fields(n);
    one.sequence = 3 * n;
    table.Append(one);
  }
  for (int n = 0; n < 20; ++n) {
    EXPECT_EQ(table.Find(n / 4, 3 * n), table[static_cast<size_t>(n)]);
    EXPECT_FALSE(table.Find(n / 4, 3 * n + 1));
    EXPECT_FALSE(table.Find(n / 4 + 1, 3 * n));
  }
}

TEST(RecordTable, TakesInAnother) {
  RecordTable table;
  RecordTable other;
  for (int n = 0; n < 5000; ++n) {
    (n < 7 ? table : other).Append(Fields(n));
  }
  table.Append(other);
  ASSERT_EQ(table.size(), 5000U);
  for (int n = 0; n < 5000; ++n) {
    const Record record = table[static_cast<size_t>(n)];
    ExpectSame(record.fields(), Fields(n));
    EXPECT_EQ(record.number(), n);
  }
  EXPECT_EQ(table.id_count(), 6U);
}

TEST(RecordTable, ForgetsTheLastOnes) {
  RecordTable table;
  for (int n = 0; n < 5000; ++n) table.Append(Fields(n));
  table.Truncate(10);
  EXPECT_EQ(table.size(), 10U);
  ExpectSame(table.back().fields(), Fields(9));
  table.Append(Fields(99));
  ExpectSame(table[10].fields(), Fields(99));
  EXPECT_EQ(table[10].number(), 10);
}

// A changed copy stands for the record whose bytes it has.
TEST(RecordTable, CopiesKeepTheirNumbers) {
  RecordTable trace;
  for (int n = 0; n < 4; ++n) trace.Append(Fields(n));
  RecordTable copies;
  RecordFields first = trace[0].fields();
  first.layout.dims[1].segments[0].begin = 8;
  EXPECT_EQ(copies.Append(first).number(), 0);
  EXPECT_EQ(copies.Append(trace[3].fields()).number(), 3);
  EXPECT_EQ(copies.Append(trace[1].fields()).number(), 1);
  EXPECT_EQ(copies[0].number(), 0);
  EXPECT_EQ(copies[0].layout(), first.layout);
  EXPECT_NE(trace[0].layout(), first.layout);
}

TEST(RecordList, SortsAndErases) {
  RecordTable table;
  for (int n = 0; n < 6; ++n) table.Append(Fields(n));
  RecordList list = {table[4], table[1], table[3], table[0]};
  list.StableSort([](const Record& a, const Record& b) {
    return a.micro_batch() < b.micro_batch();
  });
  EXPECT_THAT(std::vector<Record>(list.begin(), list.end()),
              testing::ElementsAre(table[4], table[0], table[1], table[3]));
  list.EraseIf([](const Record& r) { return r.sequence() == 0; });
  EXPECT_THAT(std::vector<Record>(list.begin(), list.end()),
              testing::ElementsAre(table[4], table[1], table[3]));
}

}  // namespace
}  // namespace ttrace::record_table_test
