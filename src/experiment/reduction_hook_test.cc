#include "src/experiment/reduction_hook.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ttrace::reduction_hook_test {
namespace {

const Note kHook = {
    0, "comm_hook",
    R"({"name":"mine","iteration":0,"sends":"","elements":100,"ranks":[0,1]})"};

Collective Sum(int64_t elements, const std::string& dtype) {
  Collective out;
  out.kind = "all_reduce";
  out.op = "sum";
  out.members = {0, 1};
  out.phase = "backward";
  out.elements = elements;
  out.dtype = dtype;
  return out;
}

ReductionHook Read(std::vector<Collective> seen, const Note& note = kHook) {
  CollectiveLog log;
  log.seen = std::move(seen);
  log.complete = {{0, 0}};
  return ReadReductionHook(std::vector<Note>{note}, log).value();
}

TEST(ReductionHook, SendsWhatItsCollectivesSum) {
  const ReductionHook hook = Read({Sum(60, "bfloat16"), Sum(40, "bfloat16")});
  EXPECT_EQ(hook.name, "mine");
  EXPECT_EQ(hook.sends, DType::kBF16);
  EXPECT_EQ(hook.ranks, 2);
  EXPECT_EQ(hook.times, 1);
}

TEST(ReductionHook, IsCountedOnceForEachTimeThatItSendsAll) {
  EXPECT_EQ(Read({Sum(300, "float16")}).times, 3);
}

TEST(ReductionHook, TakesTheCoarsestOfWhatItSends) {
  EXPECT_EQ(Read({Sum(90, "float32"), Sum(10, "bfloat16")}).sends,
            DType::kBF16);
}

TEST(ReductionHook, IsToldFromSumsOfTheModel) {
  // Statistics of a normalisation beside all gradients.
  EXPECT_EQ(Read({Sum(100, "float16"), Sum(7, "float32")}).sends, DType::kF16);
  EXPECT_EQ(Read({Sum(107, "float32")}).sends, DType::kF32);
  // Of another group, or in the forward.
  Collective other = Sum(50, "int8");
  other.members = {0};
  Collective forward = Sum(50, "int8");
  forward.phase = "forward";
  // What the model's own backward exchanges.
  Collective gathered = Sum(24, "float64");
  gathered.kind = "all_to_all";
  gathered.node = "GatherBackward";
  EXPECT_EQ(Read({Sum(100, "float32"), other, forward, gathered}).sends,
            DType::kF32);
}

TEST(ReductionHook, IsUnknownWhereItSendsSomethingElse) {
  Collective gathered = Sum(100, "float32");
  gathered.kind = "all_gather";
  gathered.op = "";
  EXPECT_FALSE(Read({Sum(30, "float32")}).sends);  // factors of low rank
  EXPECT_FALSE(Read({Sum(107, "bfloat16")}).sends);
  EXPECT_FALSE(Read({Sum(100, "int8")}).sends);
  EXPECT_FALSE(Read({gathered}).sends);
  EXPECT_FALSE(Read({}).sends);
  EXPECT_FALSE(Read({}).why_unknown.empty());
}

TEST(ReductionHook, IsKnownByTheFrameworksOwnName) {
  const Note built_in = {0, "comm_hook",
                         R"({"name":"FP16_COMPRESS","iteration":0,)"
                         R"("sends":"float16","elements":100,"ranks":[0,1]})"};
  EXPECT_EQ(Read({}, built_in).sends, DType::kF16);
}

TEST(ReductionHook, IsUnknownWhereCollectivesWereNotRecorded) {
  CollectiveLog log;
  log.seen = {Sum(100, "bfloat16")};
  EXPECT_FALSE(ReadReductionHook(std::vector<Note>{kHook}, log)->sends);
  EXPECT_FALSE(ReadReductionHook(std::vector<Note>{}, log));
}

}  // namespace
}  // namespace ttrace::reduction_hook_test
