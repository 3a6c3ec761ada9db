// How often the bytes of a record are read, counted where this test binary asks
// the system for them: by a pread of its own.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/for_each.h"
#include "src/measure/measure_tensor.h"
#include "src/trace/testing/scratch_trace.h"

namespace {

std::atomic<bool> g_counting = false;
std::mutex g_mutex;
std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> g_reads;

ssize_t CountedRead(int file, void* out, size_t size, off_t offset) {
  const ssize_t got = ::syscall(SYS_pread64, file, out, size, offset);
  if (!g_counting || got <= 0) return got;
  const auto path =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file));
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_reads[path.string()].emplace_back(offset, offset + got);
  return got;
}

}  // namespace

extern "C" ssize_t pread(int file, void* out, size_t size, off_t offset) {
  return CountedRead(file, out, size, offset);
}
extern "C" ssize_t pread64(int file, void* out, size_t size, off_t offset) {
  return CountedRead(file, out, size, offset);
}

namespace ttrace::reads_test {
namespace {

// Bytes read of a record, over its bytes.
double ReadsOf(const Trace& trace, const Record& record) {
  const Extent extent = record.extent();
  const auto rank = static_cast<size_t>(record.rank());
  const std::string path = std::filesystem::canonical(
      trace.ranks().at(rank).folder + "/" + SegmentFileName(extent.segment));
  int64_t bytes = 0;
  for (const auto& [begin, end] : g_reads[path]) {
    bytes += std::max<int64_t>(0, std::min(end, extent.offset + extent.bytes) -
                                      std::max(begin, extent.offset));
  }
  return static_cast<double>(bytes) / static_cast<double>(extent.bytes);
}

// One tensor of each leg, shards of columns on `ranks`.
Side Write(const std::string& folder, int ranks, int64_t rows, int64_t cols,
           const std::vector<Leg>& legs, double by) {
  OrDie(CreateTraceFolder(folder, "{}", true));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto writer = OpenRank(folder, rank, ranks);
    RecordSpec spec = PlainSpec("layer", DType::kF32, {rows, cols});
    spec.role = Role::kOutput;
    const int64_t own = cols / ranks;
    spec.local_shape = {rows, own};
    if (ranks > 1) spec.placements = {{"tp", Shard{1}}};
    double leg_by = by;
    for (const Leg& leg : legs) {
      std::vector<float> values(static_cast<size_t>(rows * own));
      for (int64_t i = 0; i < rows * own; ++i) {
        const int64_t at = i / own * cols + rank * own + i % own;
        values[static_cast<size_t>(i)] = static_cast<float>(
            (1 + static_cast<double>(at % 8191)) * (1 + leg_by));
      }
      leg_by += 1e-6;
      Occurrence occurrence;
      occurrence.leg = leg;
      const std::vector<int64_t> strides = {own, 1};
      OrDie(writer->Append(spec, occurrence,
                           {std::as_bytes(std::span(values)).data(), strides}));
      OrDie(writer->Seal(0, leg));
    }
    OrDie(writer->Close(true, ""));
  }
  return Side::Of(OrDie(Trace::Open(folder)));
}

struct Reads {
  double reference = 0;  // of its real leg
  double others = 0;     // the most of any other record
};

Reads Measure(int64_t rows, int64_t cols, int ranks, int threads) {
  const ScratchFolder a, b;
  const Side reference =
      Write(a.path(), 1, rows, cols,
            {"real", "noise.1", "noise.2", "fp32", "isolated.noise.1"}, 0);
  const Side candidate =
      Write(b.path(), ranks, rows, cols, {"real", "isolated"}, 1e-4);
  LegPlan whole;
  whole.name = whole.reference_leg = whole.candidate_leg = "real";
  whole.noise_legs = {"noise.1", "noise.2"};
  whole.fp32_leg = "fp32";
  whole.unit_roundoff = 0x1p-24;
  LegPlan isolated = whole;
  isolated.name = isolated.candidate_leg = "isolated";
  isolated.noise_legs = {"isolated.noise.1"};
  isolated.isolated = true;
  const std::vector<LegPlan> plans = {whole, isolated};
  const RowAlignment rows_alignment;
  const TensorMeasurer measurer(&reference, candidate, plans, rows_alignment);
  const TensorId& id = candidate.real().begin()->first;
  const TensorPieces& pieces = candidate.real().begin()->second;
  std::atomic<int64_t> bytes = 0;
  g_reads.clear();
  g_counting = true;
  OrDie(ForEach(threads, 1, [&](size_t) -> Status {
    TTRACE_ASSIGN_OR_RETURN(const TensorFacts facts,
                            measurer.Measure(id, pieces, &bytes));
    EXPECT_EQ(facts.legs.size(), 2U);
    for (const LegFacts& leg : facts.legs) {
      EXPECT_TRUE(leg.usable) << leg.trouble;
      EXPECT_EQ(leg.candidate.total.count, rows * cols);
      EXPECT_EQ(leg.noise.size(), leg.plan == 0 ? 2U : 1U);
      EXPECT_TRUE(leg.candidate_fp32 && leg.reference_fp32);
    }
    return Done{};
  }));
  g_counting = false;
  Reads out;
  for (const Side* side : {&reference, &candidate}) {
    for (size_t i = 0; i < side->trace().records().size(); ++i) {
      const Record record = side->trace().records()[i];
      const double reads = ReadsOf(side->trace(), record);
      EXPECT_GE(reads, 1) << record.leg().name();
      if (side == &reference && record.leg() == "real") {
        out.reference = reads;
      } else {
        out.others = std::max(out.others, reads);
      }
    }
  }
  return out;
}

class TensorReads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, TensorReads, testing::Values(1, 2),
                         testing::PrintToStringParamName());

// Checksums included.
TEST_P(TensorReads, OfWhatFitsARangeAreOne) {
  for (const int ranks : {1, 4}) {
    const Reads reads = Measure(64, 512, ranks, GetParam());
    EXPECT_EQ(reads.reference, 1);
    EXPECT_EQ(reads.others, 1);
  }
}

// Once more the reference, for the scale of its elements.
TEST_P(TensorReads, OfALargeTensorAreOneForAllLegs) {
  for (const int ranks : {1, 4}) {
    const Reads reads = Measure(2048, 1024, ranks, GetParam());
    EXPECT_EQ(reads.reference, 2);
    EXPECT_EQ(reads.others, 1);
  }
}

}  // namespace
}  // namespace ttrace::reads_test
