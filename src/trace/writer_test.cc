#include "src/trace/writer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::writer_test {
namespace {

Status AppendOne(TraceWriter& writer, const RecordSpec& spec,
                 const Occurrence& occurrence) {
  static const std::vector<float> memory(64, 1.0f);
  const std::vector<int64_t> strides(spec.local_shape.size(), 0);
  return writer.Append(spec, occurrence,
                       {std::as_bytes(std::span(memory)).data(), strides});
}

TEST(TraceWriter, RefusesARankThatContradictsItsMesh) {
  const ScratchFolder folder;
  const auto refused = [&](const RankMeta& meta) {
    const auto writer = TraceWriter::Open(folder / "trace", meta);
    return !writer.ok() && writer.error().code() == ErrorCode::kInvalidArgument;
  };
  RankMeta meta = TensorParallelMeta(1, 4);
  meta.rank = 4;
  EXPECT_TRUE(refused(meta)) << "outside the world";
  meta = TensorParallelMeta(1, 4);
  meta.mesh.dims[0].size = 3;
  EXPECT_TRUE(refused(meta)) << "3 is not 4";
  meta = TensorParallelMeta(1, 4);
  meta.coordinate = {4};
  EXPECT_TRUE(refused(meta)) << "outside the mesh";
  meta = TensorParallelMeta(1, 4);
  meta.coordinate = {};
  EXPECT_TRUE(refused(meta)) << "no coordinate";
  for (const char* name : {"", "t p", "mb", "tp:", "\n"}) {
    meta = TensorParallelMeta(1, 4);
    meta.mesh.dims[0].name = name;
    EXPECT_TRUE(refused(meta)) << "'" << name << "'";
  }
  meta = TensorParallelMeta(1, 4);
  meta.mesh.dims.push_back({"tp", 1});
  meta.coordinate = {1, 0};
  EXPECT_TRUE(refused(meta)) << "two dimensions of one name";
  meta = TensorParallelMeta(1, 4);
  meta.adapter_json = "[1]";
  EXPECT_TRUE(refused(meta)) << "not an object";
  EXPECT_FALSE(std::filesystem::exists(folder / "trace"));
}

TEST(TraceWriter, ATensorThatContradictsItselfIsSkippedAndNothingElse) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  const auto writer = OpenRank(folder.path(), 0, 2);
  std::vector<std::pair<RecordSpec, Occurrence>> bad;
  const RecordSpec good = PlainSpec("x", DType::kF32, {4});
  const auto add = [&](auto change) {
    RecordSpec spec = good;
    Occurrence occurrence = RealOccurrence();
    change(spec, occurrence);
    bad.emplace_back(spec, occurrence);
  };
  add([](auto& s, auto&) { s.global_shape = {5}; });
  add([](auto& s, auto&) { s.global_shape = {4, 1}; });
  add([](auto& s, auto&) { s.placements = {{"tp", Shard{0}}}; });
  add([](auto& s, auto&) { s.placements = {{"ep", Replicate{}}}; });
  add([](auto& s, auto&) { s.batch_dim = 1; });
  add([](auto& s, auto& o) { s.batch_dim = 0, o.row_begin = 1; });
  add([](auto& s, auto&) { s.scale = {1, 0}; });
  add([](auto& s, auto&) { s.reduced_over = {"dp"}; });
  add([](auto& s, auto&) { s.dtype = static_cast<DType>(99); });
  add([](auto& s, auto&) { s.role = static_cast<Role>(99); });
  add([](auto& s, auto&) { s.fqn = "\xFF"; });
  add([](auto& s, auto&) { s.fqn = std::string(2 << 20, 'x'); });
  add([](auto&, auto& o) { o.pass = static_cast<Pass>(99); });
  add([](auto&, auto& o) { o.leg = ""; });
  add([](auto&, auto& o) { o.iteration = -1; });
  add([](auto&, auto& o) { o.call = -1; });
  add([](auto&, auto& o) { o.micro_batch = -2; });
  add([](auto& s, auto&) {
    s.local_shape = s.global_shape = {int64_t{1} << 62};
  });
  for (size_t i = 0; i < bad.size(); ++i) {
    const Status status = AppendOne(*writer, bad[i].first, bad[i].second);
    ASSERT_FALSE(status.ok()) << "case " << i;
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_LT(status.error().message().size(), 500u);
  }
  EXPECT_FALSE(writer->Append(good, RealOccurrence(), {nullptr, {}}).ok());
  const std::vector<int64_t> stride = {1};
  EXPECT_FALSE(writer->Append(good, RealOccurrence(), {nullptr, stride}).ok());

  OrDie(AppendOne(*writer, good, RealOccurrence()));
  OrDie(writer->Close(true, ""));
  const auto trace = OrDie(Trace::Open(folder.path()));
  ASSERT_EQ(trace->records().size(), 1u);
  EXPECT_TRUE(trace->ranks()[0].complete);
}

TEST(TraceWriter, HostileNamesRoundTripAndNeverBecomePaths) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder / "trace", "{}", false));
  const std::vector<std::string> names = {"../../escape",
                                          "/etc/passwd",
                                          std::string("nul\0byte", 8),
                                          "a\nb",
                                          "\"quoted\\\"",
                                          "",
                                          std::string(100'000, 'y')};
  {
    const auto writer = OpenRank(folder / "trace", 0, 1);
    for (const std::string& name : names) {
      Occurrence occurrence = RealOccurrence();
      occurrence.leg = Leg("leg" + name);
      OrDie(AppendOne(*writer, PlainSpec(name, DType::kF32, {2}), occurrence));
      OrDie(writer->Seal(0, occurrence.leg));
    }
    OrDie(writer->Close(true, ""));
  }
  const auto trace = OrDie(Trace::Open(folder / "trace"));
  ASSERT_EQ(trace->records().size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(trace->records()[i].id().fqn, names[i]);
    EXPECT_EQ(trace->records()[i].leg().name(), "leg" + names[i]);
  }
  std::vector<std::string> found;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file()) {
      found.push_back(entry.path().filename().string());
    }
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector<std::string>{"index.jsonl", "manifest.json",
                                             "meta.json",
                                             "segment-00000.safetensors"}));
}

TEST(TraceWriter, ARestartWritesBesideAndNeverOver) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  for (int start = 0; start < 3; ++start) {
    const auto writer = OpenRank(folder.path(), 3, 4);
    OrDie(AppendFloats(*writer, "x", {static_cast<float>(start)}));
    OrDie(writer->Close(true, ""));
  }
  for (const char* name : {"rank-00003.r0", "rank-00003.r1", "rank-00003.r2"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / name));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  ASSERT_EQ(trace->ranks().size(), 1u);
  EXPECT_EQ(trace->ranks()[0].folder, folder / "rank-00003.r2");
  EXPECT_EQ(ReadFloats(*trace, trace->records()[0]), std::vector<float>{2});
}

TEST(TraceWriter, NothingFollowsClose) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  const auto writer = OpenRank(folder.path(), 0, 1);
  OrDie(writer->Close(true, ""));
  EXPECT_FALSE(AppendFloats(*writer, "x", {1}).ok());
  EXPECT_FALSE(writer->Note("k", "{}").ok());
  EXPECT_FALSE(writer->Seal(0, "real").ok());
  EXPECT_FALSE(writer->Close(true, "").ok());
  EXPECT_TRUE(OrDie(Trace::Open(folder.path()))->ranks()[0].complete);
}

TEST(TraceWriter, WithoutCloseWhatWasAppendedIsThereAndTheTraceIncomplete) {
  const ScratchFolder folder;
  WriteSmallTrace(folder.path(), /*closed=*/false);
  const auto trace = OrDie(Trace::Open(folder.path()));
  EXPECT_EQ(trace->records().size(), 3u);
  EXPECT_FALSE(trace->ranks()[0].closed);
  EXPECT_FALSE(trace->ranks()[0].complete);
  EXPECT_FALSE(trace->ranks()[0].incomplete_reason.empty());
}

TEST(TraceWriter, AForkedChildCannotWriteIntoItsParentsTrace) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  auto writer = OpenRank(folder.path(), 0, 1);
  OrDie(AppendFloats(*writer, "x", {1}));
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = !AppendFloats(*writer, "child", {2}).ok();
    writer.reset();  // As a destructor at exit would.
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(FileText(folder / "rank-00000.r0/index.jsonl").empty());
  OrDie(AppendFloats(*writer, "y", {3}));
  OrDie(writer->Close(true, ""));
  EXPECT_EQ(OrDie(Trace::Open(folder.path()))->records().size(), 2u);
}

// Runs in a child, whose limits are its own.
template <typename Body>
void InChildWithFileSizeLimit(rlim_t bytes, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_DFL);
    const rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(TraceWriter, AFailingWriteIsStickyAndTheTraceSaysThatItIsIncomplete) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  InChildWithFileSizeLimit(kSegmentHeaderBytes + 10'000, [&] {
    const auto writer = OpenRank(folder.path(), 1, 2);
    const std::vector<float> values(1000, 1.5f);  // 4,000 bytes
    EXPECT_TRUE(AppendFloats(*writer, "a", values).ok());
    EXPECT_TRUE(AppendFloats(*writer, "b", values).ok());
    const Status failed = AppendFloats(*writer, "c", values);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code(), ErrorCode::kIo);
    EXPECT_NE(failed.error().message().find("rank 1"), std::string::npos);
    EXPECT_NE(failed.error().message().find("segment-00000"),
              std::string::npos);
    // A tensor that would fit fails, too: the failure is sticky.
    for (const Status& later :
         {AppendFloats(*writer, "d", {}), writer->Seal(0, "real"),
          writer->Note("k", "{}"), writer->Close(true, "")}) {
      ASSERT_FALSE(later.ok());
      EXPECT_EQ(later.error().message(), failed.error().message());
    }
  });
  const auto trace = OrDie(Trace::Open(folder.path()));
  ASSERT_EQ(trace->records().size(), 2u);
  for (const Record& record : trace->records()) OrDie(trace->Verify(record));
  EXPECT_FALSE(trace->ranks()[0].complete);
  EXPECT_NE(trace->ranks()[0].incomplete_reason.find("cannot write"),
            std::string::npos);
}

TEST(TraceWriter, AnIndexThatCannotGrowLeavesATraceThatCanBeRead) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  // Empty tensors: only the index grows, to the middle of some line.
  InChildWithFileSizeLimit(100'001, [&] {
    const auto writer = OpenRank(folder.path(), 0, 1);
    Status status = Done{};
    for (int i = 0; i < 2000 && status.ok(); ++i) {
      status = AppendFloats(*writer, "x", {});
    }
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kIo);
    EXPECT_FALSE(writer->Close(true, "").ok());
  });
  const auto trace = OrDie(Trace::Open(folder.path()));
  EXPECT_GT(trace->records().size(), 100u);
  EXPECT_FALSE(trace->ranks()[0].complete);
  EXPECT_EQ(trace->ranks()[0].dropped_lines, 1);
}

TEST(TraceWriter, CannotOpenWhereAFolderCannotBe) {
  const ScratchFolder folder;
  SetFileText(folder / "file", "");
  const auto writer =
      TraceWriter::Open(folder / "file", TensorParallelMeta(0, 1));
  ASSERT_FALSE(writer.ok()) << "a file is no folder";
  EXPECT_EQ(writer.error().code(), ErrorCode::kIo);
}

}  // namespace
}  // namespace ttrace::writer_test
