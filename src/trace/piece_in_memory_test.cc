#include "src/trace/piece_in_memory.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "src/trace/index/record_check.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::piece_in_memory_test {
namespace {

RecordFields FieldsOf(const RankMeta& meta, const Shape& shape) {
  const RecordSpec spec = PlainSpec("m", DType::kF32, shape);
  return OrDie(
      MakeRecord(meta, spec, OrDie(CheckSpec(meta, spec)), RealOccurrence()));
}

TEST(PieceInMemory, IsReadAsAPieceOfAFolderIs) {
  const RankMeta meta = TensorParallelMeta(1, 2);
  PieceInMemory memory(meta);
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const auto hold = [&](const std::vector<int64_t>& strides) {
    memory.Hold(FieldsOf(meta, {2, 3}),
                {reinterpret_cast<const std::byte*>(values.data()), strides});
    std::vector<float> out(4);
    OrDie(memory.Read(memory.records().front(), sizeof(float),
                      std::as_writable_bytes(std::span(out))));
    return out;
  };
  EXPECT_EQ(hold({3, 1}), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(hold({1, 2}), (std::vector<float>{2, 4, 1, 3})) << "transposed";
  EXPECT_EQ(memory.records().size(), 1U);
  EXPECT_EQ(memory.records().front().rank(), 1);
  EXPECT_EQ(memory.coordinate(1), Coordinate{1});
  std::vector<std::byte> much(25);
  const Status outside = memory.Read(memory.records().front(), 0, much);
  ASSERT_FALSE(outside.ok());
  EXPECT_EQ(outside.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ttrace::piece_in_memory_test
