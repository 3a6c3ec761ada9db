// Comparing needs memory for tiles, not for tensors. Counted by replacing the
// allocation functions of this test binary.

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "src/base/for_each.h"
#include "src/compare/compare_tensor.h"
#include "src/trace/testing/scratch_trace.h"

namespace {

std::atomic<size_t> g_live{0};
std::atomic<size_t> g_peak{0};
constexpr size_t kHeader = alignof(std::max_align_t);

void* Allocate(size_t size) noexcept {
  auto* p = static_cast<std::byte*>(std::malloc(size + kHeader));
  if (p == nullptr) std::abort();
  *reinterpret_cast<size_t*>(p) = size;
  const size_t live = g_live += size;
  size_t peak = g_peak;
  while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
  }
  return p + kHeader;
}

void Release(void* p) noexcept {
  if (p == nullptr) return;
  auto* start = static_cast<std::byte*>(p) - kHeader;
  g_live -= *reinterpret_cast<size_t*>(start);
  std::free(start);
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size);
}
void operator delete(void* p) noexcept { Release(p); }
void operator delete[](void* p) noexcept { Release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { Release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { Release(p); }
void operator delete(void* p, size_t) noexcept { Release(p); }
void operator delete[](void* p, size_t) noexcept { Release(p); }

namespace ttrace::memory_test {
namespace {

constexpr int64_t kRows = 4096;
constexpr int64_t kCols = 4096;  // 64 MiB of float

// A tensor of zeros with strides of zero: no memory for the writer either.
std::shared_ptr<const Trace> WriteZeros(const std::string& folder, int ranks,
                                        const Placement& placement,
                                        int64_t local_cols) {
  OrDie(CreateTraceFolder(folder, "{}", true));
  static const float kZero = 0;
  const std::vector<int64_t> strides = {0, 0};
  for (int rank = 0; rank < ranks; ++rank) {
    const auto writer = OpenRank(folder, rank, ranks);
    RecordSpec spec = PlainSpec("big", DType::kF32, {kRows, kCols});
    spec.local_shape = {kRows, local_cols};
    spec.placements = {{"tp", placement}};
    OrDie(
        writer->Append(spec, RealOccurrence(),
                       {reinterpret_cast<const std::byte*>(&kZero), strides}));
    OrDie(writer->Seal(0, "real"));
    OrDie(writer->Close(true, ""));
  }
  return OrDie(Trace::Open(folder));
}

// Peak of additional memory while comparing.
size_t PeakOfComparing(const Catalog& a, const Catalog& b, int threads) {
  const size_t before = g_live;
  g_peak = before;
  const Status status = ForEach(threads, 1, [&](size_t) -> Status {
    TTRACE_ASSIGN_OR_RETURN(const TensorComparison got,
                            CompareTensor(a.tensors("real").begin()->second,
                                          b.tensors("real").begin()->second));
    EXPECT_EQ(got.total.count, kRows * kCols);
    EXPECT_TRUE(got.complete());
    return Done{};
  });
  EXPECT_TRUE(status.ok());
  return g_peak - before;
}

class Memory : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, Memory, testing::Values(1, 3),
                         testing::PrintToStringParamName());

TEST_P(Memory, IsBoundedByTilesNotByTensors) {
  const int threads = GetParam();
  // A tensor is 64 MiB.
  const size_t limit = static_cast<size_t>(threads) << 22;
  const ScratchFolder whole, columns, narrow, terms;
  const Catalog a(WriteZeros(whole.path(), 1, Replicate{}, kCols));
  const Catalog b(WriteZeros(columns.path(), 2, Shard{1}, kCols / 2));
  const Catalog n(WriteZeros(narrow.path(), 64, Shard{1}, kCols / 64));
  const Catalog c(WriteZeros(terms.path(), 2, Partial{}, kCols));
  EXPECT_LT(PeakOfComparing(a, a, threads), limit);
  EXPECT_LT(PeakOfComparing(a, b, threads), limit);
  EXPECT_LT(PeakOfComparing(b, c, threads), limit);
  EXPECT_LT(PeakOfComparing(a, n, threads), limit);
}

}  // namespace
}  // namespace ttrace::memory_test
