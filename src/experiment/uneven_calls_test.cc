#include "src/experiment/uneven_calls.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::uneven_calls_test {
namespace {

// Outputs of a module, as often for each micro-batch as `calls` says.
void Write(const std::string& folder, const std::vector<int>& calls) {
  OrDie(CreateTraceFolder(folder, "{}", true));
  const auto writer = OpenRank(folder, 0, 1);
  const float value = 1;
  const RecordSpec spec = PlainSpec("cell", DType::kF32, {1});
  for (size_t m = 0; m < calls.size(); ++m) {
    for (int call = 0; call < calls[m]; ++call) {
      Occurrence at = RealOccurrence();
      at.micro_batch = static_cast<int>(m);
      at.call = call;
      OrDie(writer->Append(spec, at,
                           {reinterpret_cast<const std::byte*>(&value),
                            RowMajorStrides(spec.local_shape)}));
    }
  }
  OrDie(writer->Seal(0, "real"));
  OrDie(writer->Close(true, ""));
}

std::set<ModuleOfIteration> Uneven(const std::vector<int>& reference,
                                   const std::vector<int>& candidate) {
  ScratchFolder a;
  ScratchFolder b;
  Write(a.path(), reference);
  Write(b.path(), candidate);
  return UnevenCalls(OrDie(Side::Open(a.path(), {})),
                     OrDie(Side::Open(b.path(), {})));
}

TEST(UnevenCalls, AreCountedForEachMicroBatchOfBothRuns) {
  const std::set<ModuleOfIteration> cell = {{"cell", 0}};
  EXPECT_TRUE(Uneven({3}, {3, 3}).empty());
  EXPECT_EQ(Uneven({3}, {3, 2}), cell);
  EXPECT_EQ(Uneven({3, 2}, {3}), cell);
  EXPECT_EQ(Uneven({3}, {2}), cell);
}

TEST(UnevenCalls, AreOfThoseThatCallIt) {
  EXPECT_TRUE(Uneven({3}, {0, 3}).empty());
}

}  // namespace
}  // namespace ttrace::uneven_calls_test
