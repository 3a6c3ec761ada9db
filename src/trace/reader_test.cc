#include "src/trace/reader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "src/trace/segments/segment_pool.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::reader_test {
namespace {

TEST(TraceReader, ReadsAnyPartOfATensor) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  const auto trace = OrDie(Trace::Open(folder.path()));
  const Record& record = trace->records()[0];
  float value = 0;
  OrDie(trace->Read(record, 4, std::as_writable_bytes(std::span(&value, 1))));
  EXPECT_EQ(value, 2.0f);
  OrDie(trace->Read(record, 12, {}));
}

// Ranks that repeat what others say, and that say something else.
void WriteRanks(const std::string& folder, int ranks) {
  OrDie(CreateTraceFolder(folder, "{}", false));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto writer = OpenRank(folder, rank, ranks);
    for (int i = 0; i < 3 + rank % 2; ++i) {
      OrDie(AppendFloats(*writer, "t" + std::to_string(i),
                         {static_cast<float>(rank), 7}));
    }
    OrDie(writer->Close(true, ""));
  }
}

TEST(TraceReader, IsTheSameOnAnyNumberOfThreads) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 23);
  const auto one = OrDie(Trace::Open(folder.path(), 1));
  for (const int threads : {0, 2, 5}) {
    const auto other = OrDie(Trace::Open(folder.path(), threads));
    ASSERT_EQ(other->ranks().size(), 23U);
    ASSERT_EQ(other->records().size(), one->records().size());
    for (size_t n = 0; n < one->records().size(); ++n) {
      const Record a = one->records()[n];
      const Record b = other->records()[n];
      EXPECT_EQ(a.rank(), b.rank());
      EXPECT_EQ(a.sequence(), b.sequence());
      EXPECT_EQ(a.id(), b.id());
      EXPECT_EQ(a.extent(), b.extent());
      EXPECT_EQ(b.number(), static_cast<int64_t>(n));
    }
    EXPECT_EQ(other->records().id_count(), 4U);
  }
}

TEST(TraceReader, NamesTheFirstOfSeveralRanksThatAreBroken) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 23);
  for (const int rank : {21, 4, 9}) {
    SetFileByte(
        folder.path() + "/" + RankFolderName({rank, 0}) + "/index.jsonl", 0,
        'x');
  }
  for (const int threads : {1, 4}) {
    const auto trace = Trace::Open(folder.path(), threads);
    ASSERT_FALSE(trace.ok());
    EXPECT_NE(trace.error().message().find("rank 4: "), std::string::npos)
        << trace.error().message();
  }
}

TEST(TraceReader, RefusesToReadOutsideATensor) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/true);
  const auto trace = OrDie(Trace::Open(folder.path()));
  Record record = trace->records()[0];
  std::vector<std::byte> out(8);
  for (const int64_t offset : {int64_t{-1}, int64_t{5}, int64_t{12},
                               int64_t{13}, std::numeric_limits<int64_t>::max(),
                               std::numeric_limits<int64_t>::min()}) {
    const Status status = trace->Read(record, offset, out);
    ASSERT_FALSE(status.ok()) << offset;
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  }
  RecordFields fields = record.fields();
  fields.rank = 5;
  RecordTable others;
  EXPECT_EQ(trace->Read(others.Append(fields), 0, out).error().code(),
            ErrorCode::kInvalidArgument)
      << "a record of no rank of this trace";
}

// Sets the soft limit on open files for as long as it lives.
class OpenFileLimit {
 public:
  explicit OpenFileLimit(rlim_t soft) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit limit = {std::min(soft, before_.rlim_max), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~OpenFileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

TEST(SegmentPool, KeepsAQuarterOfWhatTheProcessMayOpen) {
  for (const auto& [soft, kept] : std::vector<std::pair<rlim_t, size_t>>{
           {128, 64}, {400, 100}, {1024, 256}}) {
    const OpenFileLimit limit(soft);
    EXPECT_EQ(SegmentPool::MaxOpen(), kept) << soft;
  }
  const OpenFileLimit limit(256);
  RaiseOpenFileLimit();
  rlimit now = {};
  ::getrlimit(RLIMIT_NOFILE, &now);
  EXPECT_EQ(now.rlim_cur, std::min<rlim_t>(now.rlim_max, 16'384));
}

TEST(TraceReader, ManyThreadsReadMoreFilesThanStayOpen) {
  constexpr int kRanks = 100;
  const OpenFileLimit limit(256);
  ASSERT_GT(kRanks, static_cast<int>(SegmentPool::MaxOpen()));
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto writer = OpenRank(folder.path(), rank, kRanks);
    OrDie(AppendFloats(*writer, "x", {static_cast<float>(rank)}));
    OrDie(writer->Close(true, ""));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3 * kRanks; ++i) {
        const int rank = (i * (t + 1)) % kRanks;
        const auto at = static_cast<size_t>(rank);
        EXPECT_EQ(ReadFloats(*trace, trace->records()[at]),
                  std::vector<float>{static_cast<float>(rank)});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  size_t open = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const auto target = std::filesystem::read_symlink(entry.path(), ignored);
    if (target.string().starts_with(folder.path())) ++open;
  }
  EXPECT_LE(open, SegmentPool::MaxOpen());
}

TEST(TraceReader, ReadsManyLines) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  constexpr int kCount = 20'000;
  {
    const auto writer = OpenRank(folder.path(), 0, 1);
    for (int i = 0; i < kCount; ++i) {
      OrDie(AppendFloats(*writer, "decoder.layers.0.mlp.linear_fc1", {}, i));
    }
    OrDie(writer->Close(true, ""));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  EXPECT_EQ(trace->records().size(), static_cast<size_t>(kCount));
}

}  // namespace
}  // namespace ttrace::reader_test
