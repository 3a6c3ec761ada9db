#include "src/align/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::catalog_test {
namespace {

using testing::ElementsAre;

// Two ranks; rank 1 records "b" before "a", in two micro-batches.
std::shared_ptr<const Trace> TwoRanks(const std::string& folder) {
  OrDie(CreateTraceFolder(folder, "{}", true));
  const float values[] = {1, 2};
  const std::vector<int64_t> strides = {1};
  const auto append = [&](TraceWriter& writer, const std::string& fqn,
                          int micro_batch, const Leg& leg) {
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
  EXPECT_EQ(a->pieces[0].rank(), 0);
  EXPECT_EQ(a->pieces[1].rank(), 1);
  EXPECT_EQ(a->first_rank, 0);
  EXPECT_EQ(a->first_sequence, a->pieces[0].sequence());
}

TEST(Catalog, PiecesAreSortedByRankAndMicroBatchNotByTime) {
  const ScratchFolder folder;
  const Catalog catalog(TwoRanks(folder.path()));
  const TensorPieces* b = catalog.Find("real", Id("b"));
  ASSERT_NE(b, nullptr);
  ASSERT_EQ(b->pieces.size(), 2U);
  EXPECT_EQ(b->pieces[0].micro_batch(), 0);
  EXPECT_EQ(b->pieces[1].micro_batch(), 1);
  EXPECT_EQ(b->first_rank, 1);
  EXPECT_EQ(b->first_sequence, b->pieces[1].sequence());
}

// Two ranks, of which the second does not seal its real leg.
void WriteSums(
    const std::string& folder,
    const std::vector<std::pair<std::string, std::string>>& notes_of_second) {
  OrDie(CreateTraceFolder(folder, "{}", true));
  for (const int rank : {0, 1}) {
    const auto writer = OpenRank(folder, rank, 2);
    for (const char* leg : {"real", "fp32"}) {
      for (const char* fqn : {"sum", "plain"}) {
        RecordSpec spec = PlainSpec(fqn, DType::kF32, {});
        if (spec.fqn == "sum") spec.placements = {{"mb", Partial{}}};
        Occurrence occurrence = RealOccurrence();
        occurrence.leg = leg;
        occurrence.micro_batch = 0;
        const float value = 1;
        OrDie(writer->Append(spec, occurrence,
                             {reinterpret_cast<const std::byte*>(&value),
                              std::vector<int64_t>()}));
      }
      if (rank == 0 || std::string(leg) == "fp32") OrDie(writer->Seal(0, leg));
    }
    if (rank == 1) {
      for (const auto& [kind, json] : notes_of_second) {
        OrDie(writer->Note(kind, json));
      }
    }
    OrDie(writer->Close(rank == 0, "it ended"));
  }
}

TEST(Catalog, ASumOfMicroBatchesThatARankDidNotCompleteIsLeftOut) {
  const ScratchFolder folder;
  WriteSums(folder.path(), {});
  const Catalog catalog(OrDie(Trace::Open(folder.path())));
  // What is no sum is whole, and of a sum the rank that ended is missing.
  EXPECT_EQ(catalog.Find("real", Id("plain"))->pieces.size(), 2U);
  EXPECT_EQ(catalog.Find("real", Id("sum"))->pieces.size(), 1U);
  EXPECT_EQ(catalog.Find("fp32", Id("sum"))->pieces.size(), 2U);
  EXPECT_THAT(catalog.unfinished_sums(), ElementsAre(std::pair(Id("sum"), 1)));
}

// A rerun ended the run: its real leg was whole but for the step.
TEST(Catalog, ASumIsWholeIfThePassesThatMakeItAre) {
  const ScratchFolder folder;
  WriteSums(folder.path(), {{"passes_complete", R"({"iteration":0})"}});
  const Catalog catalog(OrDie(Trace::Open(folder.path())));
  EXPECT_EQ(catalog.Find("real", Id("sum"))->pieces.size(), 2U);
  EXPECT_TRUE(catalog.unfinished_sums().empty());
  for (const char* other :
       {R"({"iteration":1})", R"({"iteration":"0"})", "{}"}) {
    const ScratchFolder again;
    WriteSums(again.path(), {{"passes_complete", other}});
    const Catalog left_out(OrDie(Trace::Open(again.path())));
    EXPECT_EQ(left_out.unfinished_sums().size(), 1U) << other;
  }
}

}  // namespace
}  // namespace ttrace::catalog_test
