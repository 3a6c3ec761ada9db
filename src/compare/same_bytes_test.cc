// Copies with one checksum are not compared. What is said of them is what
// comparing says.

#include "src/compare/same_bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/testing/sharded_trace.h"

namespace ttrace::same_bytes_test {
namespace {

constexpr int kCopies = 4;

Sharding Copied() {
  Sharding sharding;
  sharding.mesh.dims = {{"dp", kCopies}, {"tp", 2}};
  sharding.placements = {{"tp", Shard{0}}};
  return sharding;
}

std::vector<double> Values() { return {1, -2, 0.5, 3, 1e-30, 4, 0, 7}; }

// All copies of the same values. If not of the same bytes, then with zeros of
// either sign by turns, so that no checksum is that of the copy before.
ShardedTrace Alike(bool same_bytes) {
  return ShardedTrace({4, 2}, Values(), Copied(), [=](Piece* piece) {
    // -0 and 0 are one number to a comparison.
    const bool odd = piece->rank / 2 % 2 == 1;
    if (!same_bytes && odd) {
      for (double& value : piece->values) {
        if (value == 0) value = -0.0;
      }
    }
    return true;
  });
}

void DamageFirstByte(const ShardedTrace& trace, const Record& record) {
  std::string rank = std::to_string(record.rank());
  rank.insert(0, 5 - rank.size(), '0');
  SetFileByte(
      trace.folder() + "/rank-" + rank + ".r0/segment-00000.safetensors",
      static_cast<size_t>(record.extent().offset), '?');
}

TEST(SameBytes, AreThoseOfOneChecksumDtypeAndWeight) {
  const ShardedTrace trace = Alike(true);
  const TensorPieces pieces = trace.pieces();
  const auto groups = OrDie(GroupInstances(pieces, {}));
  ASSERT_EQ(groups.size(), 2U);
  ASSERT_EQ(groups[0].instances.size(), size_t{kCopies});
  const Instance& one = groups[0].instances[0];
  Instance other = groups[0].instances[1];
  EXPECT_TRUE(SameBytes(one, other));
  EXPECT_FALSE(SameBytes(one, groups[1].instances[0]));
  Term term = other.terms.front();
  term.weight = 2;
  other.terms = {term};
  EXPECT_FALSE(SameBytes(one, other));
  term.weight = 1;
  other.terms = {term, term};
  EXPECT_FALSE(SameBytes(one, other));
}

TEST(SameBytes, AreMeasuredAsIfTheyWereCompared) {
  std::vector<double> shifted = Values();
  shifted[1] += 0.25;
  const ShardedTrace reference({4, 2}, shifted, Sharding{});
  const ShardedTrace same = Alike(true);
  const ShardedTrace compared = Alike(false);
  const auto a = OrDie(CompareTensor(reference.pieces(), same.pieces()));
  const auto b = OrDie(CompareTensor(reference.pieces(), compared.pieces()));
  ASSERT_EQ(a.instances.size(), size_t{2 * kCopies});
  ASSERT_EQ(b.instances.size(), a.instances.size());
  for (size_t i = 0; i < a.instances.size(); ++i) {
    EXPECT_EQ(a.instances[i].ranks, b.instances[i].ranks);
    EXPECT_EQ(a.instances[i].region, b.instances[i].region);
    EXPECT_EQ(a.instances[i].stats.count, 4);
    EXPECT_EQ(a.instances[i].stats.sum_sq_err, b.instances[i].stats.sum_sq_err);
    EXPECT_EQ(a.instances[i].stats.sum_sq_ref, b.instances[i].stats.sum_sq_ref);
    EXPECT_EQ(a.instances[i].stats.max_abs_err,
              b.instances[i].stats.max_abs_err);
  }
  EXPECT_EQ(a.total.mismatched, 1);
  EXPECT_EQ(a.total.sum_sq_err, b.total.sum_sq_err);

  const auto copies = OrDie(CompareReplicas(same.pieces()));
  EXPECT_EQ(copies.groups, 2);
  EXPECT_EQ(copies.copies, 2 * (kCopies - 1));
  EXPECT_EQ(copies.differing, 0);
}

// By the index the copy is as good as the others.
TEST(SameBytes, ThatAreNoLongerThoseThatWereWrittenAreRefused) {
  for (const int rank : {0, 4}) {
    const ShardedTrace reference({4, 2}, Values(), Sharding{});
    const ShardedTrace trace = Alike(true);
    const TensorPieces pieces = trace.pieces();
    for (const Record& record : pieces.pieces) {
      if (record.rank() == rank) DamageFirstByte(trace, record);
    }
    const auto copies = CompareReplicas(pieces);
    const auto compared = CompareTensor(reference.pieces(), trace.pieces());
    ASSERT_FALSE(copies.ok()) << rank;
    ASSERT_FALSE(compared.ok()) << rank;
    for (const Error& error : {copies.error(), compared.error()}) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      EXPECT_TRUE(
          error.message().starts_with("rank " + std::to_string(rank) + ": "))
          << error.message();
    }
    EXPECT_EQ(pieces.trace->damaged().size(), 1U);
  }
}

}  // namespace
}  // namespace ttrace::same_bytes_test
