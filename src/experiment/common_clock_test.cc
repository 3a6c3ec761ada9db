#include "src/experiment/common_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/experiment/execution_order.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::common_clock_test {
namespace {

using testing::ElementsAre;

// What the name says: "norm" is the gradient norm, "before.x" a state that the
// optimizer has before its step, "after.x" one that it has then; else an
// output.
Role RoleOf(const std::string& name) {
  if (name == "norm") return Role::kGradNorm;
  const bool is_state =
      name.starts_with("before.") || name.starts_with("after.");
  return is_state ? Role::kOptimState : Role::kOutput;
}

// The names of a run in order, of which each rank records those given, in each
// stage of a pipeline of `stages` two ranks.
std::vector<std::string> InOrder(
    const std::vector<std::vector<std::string>>& names, int stages = 1) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const float value = 1;
  const std::vector<int64_t> strides = {1};
  for (int rank = 0; rank < static_cast<int>(names.size()); ++rank) {
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = static_cast<int>(names.size());
    meta.mesh.dims = {{"pp", stages}, {"dp", meta.world_size / stages}};
    meta.coordinate = {rank / (meta.world_size / stages),
                       rank % (meta.world_size / stages)};
    const auto writer = OrDie(TraceWriter::Open(folder.path(), meta));
    for (const std::string& name : names[static_cast<size_t>(rank)]) {
      RecordSpec spec = PlainSpec(name, DType::kF32, {1});
      spec.role = RoleOf(name);
      Occurrence occurrence = RealOccurrence();
      if (name.starts_with("after.")) occurrence.pass = Pass::kOptimizer;
      OrDie(writer->Append(
          spec, occurrence,
          {reinterpret_cast<const std::byte*>(&value), strides}));
    }
    OrDie(writer->Close(true, ""));
  }
  const Catalog catalog(OrDie(Trace::Open(folder.path())));
  const auto& tensors = catalog.tensors("real");
  const ExecutionKeys keys(tensors);
  std::vector<std::pair<ExecutionKey, std::string>> order;
  for (const auto& [id, pieces] : tensors) {
    order.emplace_back(keys.Of(id, pieces), id.fqn);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> out;
  for (const auto& [key, name] : order) out.push_back(name);
  return out;
}

TEST(CommonClock, WhatTheFirstRankLacksComesBehindWhatBothHaveBeforeIt) {
  // The first rank has recorded more by the same moment.
  EXPECT_THAT(InOrder({{"a", "a1", "a2", "a3", "router", "z"},
                       {"a", "router", "expert", "z"}}),
              ElementsAre("a", "a1", "a2", "a3", "router", "expert", "z"));
}

TEST(CommonClock, OthersKeepTheirOwnOrder) {
  EXPECT_THAT(InOrder({{"m", "z"}, {"y", "x", "m", "c", "b", "z"}}),
              ElementsAre("y", "x", "m", "c", "b", "z"));
}

TEST(CommonClock, AnotherOrderOfTwoRanksPutsItBehindAllThatCameBefore) {
  EXPECT_THAT(InOrder({{"a", "b", "c"}, {"b", "a", "own", "c"}}),
              ElementsAre("a", "b", "own", "c"));
}

TEST(CommonClock, EachStageHasAFirstRankOfItsOwn) {
  EXPECT_THAT(InOrder({{"a"},
                       {"a", "own"},
                       {"p", "q", "r", "router", "z"},
                       {"router", "expert", "z"}},
                      /*stages=*/2),
              ElementsAre("a", "own", "p", "q", "r", "router", "expert", "z"));
}

// Each rank holds states of its own, as where an optimizer is sharded, and some
// ranks one that the first has as well.
TEST(CommonClock, StatesHaveOneOrderWhereverTheirRankPutTheNorm) {
  const std::vector<std::vector<std::string>> before = {
      {"before.a", "before.shared"},
      {"before.shared", "before.b"},
      {"before.c"}};
  const std::vector<std::vector<std::string>> after = {
      {"after.a", "after.shared"}, {"after.b", "after.shared"}, {"after.c"}};
  std::vector<std::vector<std::string>> as_it_happened(3);
  std::vector<std::vector<std::string>> states_last(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto add = [&](auto* to, const std::vector<std::string>& names) {
      to->insert(to->end(), names.begin(), names.end());
    };
    for (auto* all : {&as_it_happened[rank], &states_last[rank]}) {
      all->push_back("gradient");
    }
    add(&as_it_happened[rank], before[rank]);
    as_it_happened[rank].emplace_back("norm");
    states_last[rank].emplace_back("norm");
    add(&states_last[rank], before[rank]);
    add(&as_it_happened[rank], after[rank]);
    add(&states_last[rank], after[rank]);
  }
  const auto order = InOrder(as_it_happened);
  EXPECT_THAT(order, ElementsAre("gradient", "norm", "before.c", "before.a",
                                 "before.shared", "before.b", "after.b",
                                 "after.c", "after.a", "after.shared"));
  EXPECT_EQ(InOrder(states_last), order);
}

TEST(CommonClock, NothingHappensInNoTime) {
  EXPECT_TRUE(InOrder({{}}).empty());
}

}  // namespace
}  // namespace ttrace::common_clock_test
