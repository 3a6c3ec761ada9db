#include "src/experiment/mask_of_lengths.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "src/experiment/side.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::mask_of_lengths_test {
namespace {

constexpr int64_t kPlaces = 8;

// Rows of bytes, in two micro-batches.
bool IsMask(const std::vector<std::vector<uint8_t>>& rows) {
  ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenRank(folder.path(), 0, 1);
  const auto half = static_cast<int64_t>(rows.size()) / 2;
  RecordSpec spec = PlainSpec("", ParseDType("bool").value(), {half, kPlaces});
  spec.role = Role::kInput;
  spec.global_shape = {2 * half, kPlaces};
  spec.batch_dim = 0;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    std::vector<uint8_t> values;
    for (int64_t r = 0; r < half; ++r) {
      const auto& row = rows[static_cast<size_t>(micro_batch * half + r)];
      values.insert(values.end(), row.begin(), row.end());
    }
    Occurrence at = RealOccurrence();
    at.micro_batch = micro_batch;
    at.row_begin = micro_batch * half;
    OrDie(writer->Append(spec, at,
                         {reinterpret_cast<const std::byte*>(values.data()),
                          RowMajorStrides(spec.local_shape)}));
  }
  OrDie(writer->Seal(0, "real"));
  OrDie(writer->Close(true, ""));
  const Side side = OrDie(Side::Open(folder.path(), {}));
  return IsMaskOfLengths(side.real().begin()->second);
}

const std::vector<std::vector<uint8_t>> kMask = {
    {1, 1, 1, 1, 1, 1, 1, 0}, {1, 1, 1, 0, 0, 0, 0, 0},
    {0, 0, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1},
    {0, 0, 0, 0, 0, 0, 1, 1}, {1, 1, 0, 0, 0, 0, 0, 0}};

TEST(IsMaskOfLengths, OfRowsThatChangeOnceAtMost) {
  EXPECT_TRUE(IsMask(kMask));
  auto random = kMask;
  random[5] = {1, 0, 1, 1, 1, 1, 1, 1};
  EXPECT_FALSE(IsMask(random));
}

TEST(IsMaskOfLengths, NotOfSoFewThatChanceMayMakeThem) {
  EXPECT_FALSE(IsMask({kMask[0], kMask[1]}));
}

}  // namespace
}  // namespace ttrace::mask_of_lengths_test
