#include "src/align/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/trace/scratch_trace.h"

namespace ttrace {
namespace {

using testing::ElementsAre;

// Two ranks; rank 1 records "b" before "a", in two micro-batches.
std::shared_ptr<const Trace> TwoRanks(const std::string& folder) {
  OrDie(CreateTraceFolder(folder, "{}", true));
  const float values[] = {1, 2};
  const std::vector<int64_t> strides = {1};
  const auto append = [&](TraceWriter& writer, const std::string& fqn,
                          int micro_batch, const std::string& leg) {
    Occurrence occurrence = RealOccurrence();
    occurrence.leg = leg;
    occurrence.micro_batch = micro_batch;
    OrDie(writer.Append(PlainSpec(fqn, DType::kF32, {2}), occurrence,
                        {reinterpret_cast<const std::byte*>(values), strides}));
  };
  for (const int rank : {1, 0}) {
    const auto writer = OpenRank(folder, rank, 2);
    if (rank == 1) {
      append(*writer, "b", 1, "real");
      append(*writer, "b", 0, "real");
    }
    append(*writer, "a", -1, "real");
    append(*writer, "a", -1, "fp32");
    OrDie(writer->Close(true, ""));
  }
  return OrDie(Trace::Open(folder));
}

TensorId Id(const std::string& fqn) {
  TensorId id;
  id.fqn = fqn;
  id.arg = "0";
  return id;
}

TEST(Catalog, GroupsRecordsByLegAndIdentity) {
  const ScratchFolder folder;
  const Catalog catalog(TwoRanks(folder.path()));
  EXPECT_THAT(catalog.legs(), ElementsAre("fp32", "real"));
  EXPECT_TRUE(catalog.HasLeg("fp32"));
  EXPECT_FALSE(catalog.HasLeg("noise.1"));
  EXPECT_EQ(catalog.tensors("real").size(), 2U);
  EXPECT_TRUE(catalog.tensors("noise.1").empty());
  EXPECT_EQ(catalog.Find("fp32", Id("b")), nullptr);
  EXPECT_EQ(catalog.Find("noise.1", Id("a")), nullptr);
  const TensorPieces* a = catalog.Find("real", Id("a"));
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->trace, &catalog.trace());
  ASSERT_EQ(a->pieces.size(), 2U);
  EXPECT_EQ(a->pieces[0]->rank, 0);
  EXPECT_EQ(a->pieces[1]->rank, 1);
  EXPECT_EQ(a->first_rank, 0);
  EXPECT_EQ(a->first_sequence, a->pieces[0]->sequence);
}

TEST(Catalog, PiecesAreSortedByRankAndMicroBatchNotByTime) {
  const ScratchFolder folder;
  const Catalog catalog(TwoRanks(folder.path()));
  const TensorPieces* b = catalog.Find("real", Id("b"));
  ASSERT_NE(b, nullptr);
  ASSERT_EQ(b->pieces.size(), 2U);
  EXPECT_EQ(b->pieces[0]->micro_batch, 0);
  EXPECT_EQ(b->pieces[1]->micro_batch, 1);
  EXPECT_EQ(b->first_rank, 1);
  EXPECT_EQ(b->first_sequence, b->pieces[1]->sequence);
}

}  // namespace
}  // namespace ttrace
