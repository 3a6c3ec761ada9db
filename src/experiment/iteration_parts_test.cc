#include "src/experiment/iteration_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/experiment/execution_order.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::iteration_parts_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

using Recorded = std::vector<std::pair<std::string, Role>>;
using Parts = std::vector<std::pair<std::string, int>>;

// Names and parts of one rank's records, in the order of execution.
Parts InOrder(const Recorded& recorded) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  {
    const auto writer = OpenRank(folder.path(), 0, 1);
    const float value = 1;
    const std::vector<int64_t> strides = {1};
    for (const auto& [name, role] : recorded) {
      RecordSpec spec = PlainSpec(name, DType::kF32, {1});
      spec.role = role;
      Occurrence occurrence = RealOccurrence();
      if (role != Role::kOutput) occurrence.pass = Pass::kBackward;
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
  Parts out;
  for (const auto& [key, name] : order) out.emplace_back(name, key.part);
  return out;
}

TEST(IterationParts, AForwardBehindReducedGradientsBeginsOne) {
  EXPECT_THAT(InOrder({{"critic", Role::kOutput},
                       {"critic.arriving", Role::kGradOutput},
                       {"critic.weight", Role::kGradReduced},
                       {"critic.bias", Role::kGradReduced},
                       {"generator", Role::kOutput},
                       {"generator.arriving", Role::kGradOutput},
                       {"generator.weight", Role::kGradReduced}}),
              ElementsAre(Pair("critic", 0), Pair("critic.arriving", 0),
                          Pair("critic.weight", 0), Pair("critic.bias", 0),
                          Pair("generator", 1), Pair("generator.arriving", 1),
                          Pair("generator.weight", 1)));
}

TEST(IterationParts, WithOneStepThereIsOne) {
  EXPECT_THAT(InOrder({{"first", Role::kOutput},
                       {"first.arriving", Role::kGradOutput},
                       {"second", Role::kOutput},
                       {"first.weight", Role::kGradReduced},
                       {"second.arriving", Role::kGradOutput}}),
              ElementsAre(Pair("first", 0), Pair("second", 0),
                          Pair("first.arriving", 0), Pair("second.arriving", 0),
                          Pair("first.weight", 0)));
}

}  // namespace
}  // namespace ttrace::iteration_parts_test
