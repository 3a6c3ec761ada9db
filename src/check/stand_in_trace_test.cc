#include "src/check/stand_in_trace.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "src/in_place/candidate_reducer.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::stand_in_trace_test {
namespace {

constexpr int64_t kRows = 32;
constexpr int64_t kColumns = 256;  // of a rank

using Values = std::vector<float>;

Values Normal(size_t count) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  Values out(count);
  for (float& x : out) x = normal(rng);
  return out;
}

Values ColumnsOf(const Values& whole, int rank) {
  Values out;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto* begin = whole.data() + (2 * row + rank) * kColumns;
    out.insert(out.end(), begin, begin + kColumns);
  }
  return out;
}

RecordSpec Spec(int64_t columns) {
  RecordSpec spec = PlainSpec("m", DType::kF32, {kRows, columns});
  spec.role = Role::kOutput;
  if (columns == kColumns) spec.placements = {{"tp", Shard{1}}};
  spec.global_shape = {kRows, 2 * kColumns};
  return spec;
}

void Write(const std::string& folder, const std::string& reference,
           const Leg& leg, const std::vector<Values>& of_ranks) {
  OrDie(CreateTraceFolder(folder, "{}", true));
  const auto ranks = static_cast<int>(of_ranks.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const RankMeta meta = TensorParallelMeta(rank, ranks);
    const auto writer = OrDie(TraceWriter::Open(
        folder, meta,
        reference.empty()
            ? nullptr
            : MakeCandidateReducer(meta, {"isolated"}, reference)));
    const RecordSpec spec = Spec(2 * kColumns / ranks);
    Occurrence occurrence;
    occurrence.leg = leg;
    const Values& values = of_ranks[static_cast<size_t>(rank)];
    OrDie(writer->Append(spec, occurrence,
                         {reinterpret_cast<const std::byte*>(values.data()),
                          RowMajorStrides(spec.local_shape)}));
    OrDie(writer->Seal(0, leg));
    OrDie(writer->Close(true, ""));
  }
}

TEST(StandInTrace, HasTheReferencesValuesOfWhatWasComparedWithIt) {
  const ScratchFolder folder;
  const Values whole = Normal(2 * kRows * kColumns);
  Write(folder / "reference", "", "real", {whole});
  const Values right = ColumnsOf(whole, 0);
  Values wrong = ColumnsOf(whole, 1);
  wrong[5] += 1;
  const auto candidate_of = [&](const Values& second) {
    Write(folder / "candidate", folder / "reference", "isolated",
          {right, second});
    return OrDie(Side::Open(folder / "candidate", {}));
  };
  const auto pieces_of = [](const Side& side) {
    TensorId id;
    id.fqn = "m";
    id.role = Role::kOutput;
    id.arg = "0";
    return side.Find("isolated", id);
  };
  const Side reference = OrDie(Side::Open(folder / "reference", {}));

  const Side candidate = candidate_of(wrong);
  const TensorPieces* pieces = pieces_of(candidate);
  ASSERT_NE(pieces, nullptr);
  EXPECT_EQ(PiecesComparedInPlace(*pieces), ComparedPieces::kSome);
  const StandInTrace trace(*pieces->trace, reference);
  const auto read = [&](size_t i, int64_t first, size_t count) {
    Values out(count);
    OrDie(trace.Read(pieces->pieces[i],
                     first * static_cast<int64_t>(sizeof(float)),
                     std::as_writable_bytes(std::span(out))));
    return out;
  };
  Values out(right.size());
  EXPECT_FALSE(
      pieces->trace
          ->Read(pieces->pieces[0], 0, std::as_writable_bytes(std::span(out)))
          .ok());
  EXPECT_EQ(read(0, 0, right.size()), right);
  EXPECT_EQ(read(1, 0, wrong.size()), wrong) << "its own";
  EXPECT_EQ(read(0, 3, 2), (Values{right[3], right[4]}));
  out.resize(right.size() + 1);
  EXPECT_FALSE(
      trace.Read(pieces->pieces[0], 0, std::as_writable_bytes(std::span(out)))
          .ok());

  EXPECT_EQ(
      PiecesComparedInPlace(*pieces_of(candidate_of(ColumnsOf(whole, 1)))),
      ComparedPieces::kAll);
  EXPECT_EQ(PiecesComparedInPlace(reference.real().begin()->second),
            ComparedPieces::kNone);
}

}  // namespace
}  // namespace ttrace::stand_in_trace_test
