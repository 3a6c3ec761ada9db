#include "src/align/uneven_rows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/align/catalog.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::uneven_rows_test {
namespace {

using testing::ElementsAre;

struct Held {
  int rank = 0;
  int micro_batch = 0;
  int64_t rows = 0;
};

// Micro-batches of these rows, each placed as if all had as many.
std::shared_ptr<const Trace> Recorded(const std::string& folder,
                                      const std::vector<Held>& all, int ranks,
                                      int module_call = 0,
                                      int calls_before = -1) {
  OrDie(CreateTraceFolder(folder, "{}", true));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto writer = OpenRank(folder, rank, ranks);
    for (const Held& held : all) {
      if (held.rank != rank) continue;
      OrDie(writer->Note(
          "fed_call",
          fmt::format(R"({{"fed":"","iteration":0,"micro_batch":{},"call":0,)"
                      R"("rows":{}}})",
                      held.micro_batch, held.rows)));
      if (calls_before >= 0) {
        OrDie(writer->Note(
            "fed_call",
            fmt::format(R"({{"fed":"","iteration":0,"micro_batch":{},)"
                        R"("call":1,"rows":{},"calls":{{"fc":{}}}}})",
                        held.micro_batch, 2 * held.rows, calls_before)));
      }
      const int64_t rows = module_call == 0 ? held.rows : 2 * held.rows;
      RecordSpec spec = PlainSpec("fc", DType::kF32, {rows, 2});
      spec.batch_dim = 0;
      spec.global_shape = {rows * (held.micro_batch + 1), 2};
      Occurrence at = RealOccurrence();
      at.micro_batch = held.micro_batch;
      at.row_begin = held.micro_batch * rows;
      at.call = module_call;
      const std::vector<float> values(static_cast<size_t>(2 * rows), 1);
      OrDie(writer->Append(spec, at,
                           {reinterpret_cast<const std::byte*>(values.data()),
                            RowMajorStrides(spec.local_shape)}));
    }
    OrDie(writer->Close(true, ""));
  }
  return OrDie(Trace::Open(folder));
}

std::vector<int64_t> Begins(const Catalog& catalog, int call = 0) {
  TensorId id;
  id.fqn = "fc";
  id.arg = "0";
  id.call = call;
  std::vector<int64_t> out;
  for (const Record& piece : catalog.Find("real", id)->pieces) {
    out.push_back(piece.rows()->begin);
    EXPECT_EQ(piece.layout().dims.front().segments.front().begin,
              piece.rows()->begin);
    EXPECT_EQ(piece.layout().dims.front().global_size, piece.rows()->global);
  }
  out.push_back(catalog.Find("real", id)->global_shape().front());
  return out;
}

TEST(UnevenRows, ARankThatGetsOneRowLessLiesBehindTheOther) {
  const ScratchFolder folder;
  const Catalog catalog(Recorded(folder.path(), {{0, 0, 3}, {1, 1, 2}}, 2));
  EXPECT_THAT(Begins(catalog), ElementsAre(0, 3, 5));
}

TEST(UnevenRows, ARankMayHaveNone) {
  const ScratchFolder folder;
  const Catalog catalog(
      Recorded(folder.path(), {{0, 0, 3}, {1, 1, 3}, {0, 2, 3}}, 2));
  EXPECT_THAT(Begins(catalog), ElementsAre(0, 6, 3, 9));
  const ScratchFolder other;
  const Catalog gap(Recorded(other.path(), {{0, 0, 3}, {0, 2, 3}}, 2));
  EXPECT_THAT(Begins(gap), ElementsAre(0, 3, 6));
}

TEST(UnevenRows, ASecondCallOfTheModelHasRowsOfItsOwn) {
  const ScratchFolder folder;
  const Catalog catalog(
      Recorded(folder.path(), {{0, 0, 3}, {1, 1, 2}}, 2, 1, 1));
  EXPECT_THAT(Begins(catalog, 1), ElementsAre(0, 6, 10));
  const ScratchFolder other;
  // Of a module that was called twice before it, the second is of the first.
  const Catalog first(Recorded(other.path(), {{0, 0, 3}, {1, 1, 3}}, 2, 1, 2));
  EXPECT_EQ(first.fed_rows().CallOf(TensorId{.fqn = "fc", .call = 1}, 0).call,
            0);
}

TEST(FedRows, OfSeveralModelsEachHasItsCalls) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  {
    const auto writer = OpenRank(folder.path(), 0, 1);
    for (const char* call :
         {R"("call":1,"root":"critic","calls":{})",
          R"("call":0,"root":"gen","calls":{})",
          R"("call":3,"root":"critic","calls":{"critic.fc":1})"}) {
      OrDie(writer->Note(
          "fed_call",
          std::string(R"({"fed":"","iteration":0,"micro_batch":0,)") +
              R"("rows":2,)" + call + "}"));
    }
    OrDie(writer->Close(true, ""));
  }
  const Catalog catalog(OrDie(Trace::Open(folder.path())));
  const auto call_of = [&](const char* fqn, int call) {
    return catalog.fed_rows().CallOf({.fqn = fqn, .call = call}, 0).call;
  };
  EXPECT_EQ(call_of("critic.fc", 0), 1);
  EXPECT_EQ(call_of("critic.fc", 1), 3);
  EXPECT_EQ(call_of("gen.fc", 0), 0);
}

TEST(UnevenRows, NotesThatSayNothingMoveNothing) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  {
    const auto writer = OpenRank(folder.path(), 0, 1);
    OrDie(writer->Note("fed_call", R"({"fed":7,"rows":-3})"));
    OrDie(writer->Note("fed_rows", R"({"fed":"","iteration":-1})"));
    OrDie(writer->Note(
        "fed_rows",
        R"({"fed":"","iteration":0,"micro_batch":0,"call":0,"arg":"x",)"
        R"("dim":0,"rows":2,"whole":"zz"})"));
    OrDie(writer->Close(true, ""));
  }
  const Catalog catalog(OrDie(Trace::Open(folder.path())));
  ASSERT_EQ(catalog.fed_rows().calls().size(), 1U);
  const FedPart& part =
      catalog.fed_rows().calls().begin()->second.begin()->second;
  EXPECT_TRUE(part.tensors.at({"x", 0}).digests.whole.empty());
}

}  // namespace
}  // namespace ttrace::uneven_rows_test
