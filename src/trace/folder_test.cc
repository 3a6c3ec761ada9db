// What a trace folder may hold, and what it must not.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::folder_test {
namespace {

namespace fs = std::filesystem;

void WriteRank(const std::string& folder, const RankMeta& meta,
               float value = 1) {
  const auto writer = OrDie(TraceWriter::Open(folder, meta));
  OrDie(AppendFloats(*writer, "x", {value}));
  OrDie(writer->Close(true, ""));
}

void WriteRanks(const std::string& folder, int world_size) {
  OrDie(CreateTraceFolder(folder, "{}", false));
  for (int rank = 0; rank < world_size; ++rank) {
    WriteRank(folder, TensorParallelMeta(rank, world_size),
              static_cast<float>(rank));
  }
}

void ExpectCorrupt(const std::string& folder, const std::string& part) {
  const auto trace = Trace::Open(folder);
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.error().code(), ErrorCode::kCorrupt);
  EXPECT_NE(trace.error().message().find(part), std::string::npos)
      << trace.error().message();
}

void ReplaceInFile(const std::string& path, const std::string& from,
                   const std::string& to) {
  std::string text = FileText(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  SetFileText(path, text.replace(at, from.size(), to));
}

TEST(TraceFolder, RecordsAreSortedByRankAndSequence) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  for (const int rank : {2, 0, 1}) {
    WriteRank(folder.path(), TensorParallelMeta(rank, 3));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  ASSERT_EQ(trace->records().size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(trace->records()[static_cast<size_t>(rank)].rank(), rank);
    EXPECT_EQ(trace->coordinate(rank), Coordinate{rank});
  }
  EXPECT_TRUE(trace->missing_ranks().empty());
}

TEST(TraceFolder, MissingRanksAreListed) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 4);
  fs::remove_all(folder / "rank-00000.r0");
  fs::remove_all(folder / "rank-00002.r0");
  EXPECT_EQ(OrDie(Trace::Open(folder.path()))->missing_ranks(),
            (std::vector<int>{0, 2}));
}

TEST(TraceFolder, WithoutATraceIsNotFound) {
  const ScratchFolder folder;
  for (const std::string& path : {folder / "none", folder.path()}) {
    const auto trace = Trace::Open(path);
    ASSERT_FALSE(trace.ok());
    EXPECT_EQ(trace.error().code(), ErrorCode::kNotFound);
  }
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  EXPECT_EQ(Trace::Open(folder.path()).error().code(), ErrorCode::kNotFound)
      << "no rank has written";
}

TEST(TraceFolder, ForeignFilesAreIgnored) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 2);
  SetFileText(folder / "notes.txt", "hello");
  SetFileText(folder / "rank-00001.log", "log");
  SetFileText(folder / "rank-00000.r0/core", "dump");
  SetFileText(folder / "rank-00000.r0/segment-00007.safetensors", "stale");
  fs::create_directory(folder / "rank-7.r0");
  EXPECT_EQ(OrDie(Trace::Open(folder.path()))->records().size(), 2u);
}

TEST(TraceFolder, OfTwoRunsIsCorrupt) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 2);
  WriteRank(folder.path(), TensorParallelMeta(2, 4));
  ExpectCorrupt(folder.path(), "world size");

  const ScratchFolder meshes;
  WriteRanks(meshes.path(), 2);
  RankMeta other = TensorParallelMeta(1, 2);
  other.mesh.dims[0].name = "dp";
  WriteRank(meshes.path(), other);  // As a restart of rank 1.
  ExpectCorrupt(meshes.path(), "mesh");

  const ScratchFolder runs;
  OrDie(CreateTraceFolder(runs.path(), "{}", false));
  for (int rank = 0; rank < 2; ++rank) {
    RankMeta meta = TensorParallelMeta(rank, 2);
    meta.run_id = "run " + std::to_string(rank);
    WriteRank(runs.path(), meta);
  }
  ExpectCorrupt(runs.path(),
                "two runs are mixed in this folder: rank 0 belongs to run "
                "run 0, rank 1 belongs to run run 1");
}

TEST(TraceFolder, OfTwoRunsNamesTheRanksOfEach) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), R"({"run_id":"6f1c"})", false));
  for (int rank = 0; rank < 4; ++rank) {
    RankMeta meta = TensorParallelMeta(rank, 4);
    meta.run_id = rank == 3 ? "" : rank == 2 ? "77aa" : "6f1c";
    WriteRank(folder.path(), meta);
  }
  ExpectCorrupt(folder.path(),
                "ranks 0, 1 belong to run 6f1c, rank 2 belongs to run 77aa, "
                "rank 3 belongs to an unnamed run, manifest.json to run 6f1c");
}

TEST(TraceFolder, WithAManifestOfAnotherRunIsCorrupt) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), R"({"run_id":"one"})", false));
  RankMeta meta = TensorParallelMeta(0, 1);
  meta.run_id = "two";
  WriteRank(folder.path(), meta);
  ExpectCorrupt(folder.path(), "manifest");
}

TEST(TraceFolder, ARankThatIsThereTwiceIsCorrupt) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 2);
  fs::remove_all(folder / "rank-00001.r0");
  fs::copy(folder / "rank-00000.r0", folder / "rank-00001.r0",
           fs::copy_options::recursive);
  ExpectCorrupt(folder.path(), "is of rank 0");
  fs::remove_all(folder / "rank-00001.r0");
  RankMeta twin = TensorParallelMeta(1, 2);
  twin.coordinate = {0};
  WriteRank(folder.path(), twin);
  ExpectCorrupt(folder.path(), "same coordinate");
}

TEST(TraceFolder, TheLastRestartCountsEvenIfItWroteNothing) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 2);
  fs::create_directory(folder / "rank-00001.r1");
  SetFileText(folder / "rank-00001.r1/index.jsonl", "");
  EXPECT_EQ(OrDie(Trace::Open(folder.path()))->missing_ranks(),
            std::vector<int>{1});
}

TEST(TraceFolder, RestartsAreComparedAsNumbers) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  for (int start = 0; start <= 10; ++start) {
    WriteRank(folder.path(), TensorParallelMeta(0, 1),
              static_cast<float>(start));
  }
  const auto trace = OrDie(Trace::Open(folder.path()));
  EXPECT_EQ(ReadFloats(*trace, trace->records()[0]), std::vector<float>{10});
}

TEST(TraceFolder, ANewerFormatIsUnsupported) {
  for (const char* file : {"manifest.json", "rank-00000.r0/meta.json"}) {
    const ScratchFolder folder;
    WriteRanks(folder.path(), 1);
    const std::string text = FileText(folder / file);
    const bool spaced = text.find("\"version\": ") != std::string::npos;
    const std::string key = spaced ? "\"version\": " : "\"version\":";
    const std::string written = key + std::to_string(kFormatVersion);
    const std::string next = key + std::to_string(kFormatVersion + 1);
    ReplaceInFile(folder / file, written, next);
    const auto newer = Trace::Open(folder.path());
    ASSERT_FALSE(newer.ok());
    EXPECT_EQ(newer.error().code(), ErrorCode::kUnsupported) << file;
    EXPECT_NE(newer.error().message().find(file), std::string::npos);
    ReplaceInFile(folder / file, next, key + "0");
    ExpectCorrupt(folder.path(), "version");
  }
}

TEST(TraceFolder, BrokenManifestsAndMetaAreCorrupt) {
  for (const char* file : {"manifest.json", "rank-00000.r0/meta.json"}) {
    const ScratchFolder folder;
    WriteRanks(folder.path(), 1);
    const std::string text = FileText(folder / file);
    for (size_t size = 0; size + 2 < text.size(); ++size) {
      SetFileText(folder / file, text.substr(0, size));
      ExpectCorrupt(folder.path(), file);
    }
    for (const std::string& bad :
         {std::string("[]"), std::string("{}"), std::string(100'000, '['),
          std::string("{\"format\":\"other\",\"version\":1}")}) {
      SetFileText(folder / file, bad);
      ExpectCorrupt(folder.path(), file);
    }
    fs::remove(folder / file);
    fs::create_directory(folder / file);
    ExpectCorrupt(folder.path(), "not a regular file");
  }
}

TEST(TraceFolder, AnyFlippedBitOfMetaIsNoticed) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 2);
  const std::string path = folder / "rank-00001.r0/meta.json";
  const std::string text = FileText(path);
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      SetFileByte(path, i, static_cast<char>(text[i] ^ (1 << bit)));
      // The last '\n' may be any white space, and still is not what it was.
      EXPECT_FALSE(Trace::Open(folder.path()).ok()) << i << ' ' << bit;
    }
    SetFileByte(path, i, text[i]);
  }
}

TEST(TraceFolder, AHugeWorldCostsNothing) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 1);
  const std::string path = folder / "rank-00000.r0/meta.json";
  ReplaceInFile(path, "\"world_size\":1", "\"world_size\":2147483647");
  ReplaceInFile(path, "[\"tp\",1]", "[\"tp\",2147483647]");
  ExpectCorrupt(folder.path(), "meta.json");
}

TEST(TraceFolder, ALinkInAFilesPlaceIsNotFollowed) {
  for (const char* file :
       {"manifest.json", "rank-00000.r0/meta.json", "rank-00000.r0/index.jsonl",
        "rank-00000.r0/segment-00000.safetensors"}) {
    const ScratchFolder folder;
    WriteRanks(folder.path(), 1);
    fs::rename(folder / file, folder / "elsewhere");
    fs::create_symlink(folder / "elsewhere", folder / file);
    ExpectCorrupt(folder.path(), "is a symbolic link");
  }
}

TEST(TraceFolder, MayBeReachedThroughLinks) {
  const ScratchFolder folder;
  WriteRanks(folder / "trace", 1);
  fs::rename(folder / "trace/rank-00000.r0", folder / "rank");
  fs::create_symlink(folder / "rank", folder / "trace/rank-00000.r0");
  fs::create_symlink(folder / "trace", folder / "link");
  const auto trace = OrDie(Trace::Open(folder / "link"));
  EXPECT_EQ(ReadFloats(*trace, trace->records()[0]), std::vector<float>{0});
}

TEST(TraceFolder, AFifoForAnIndexDoesNotBlock) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 1);
  fs::remove(folder / "rank-00000.r0/index.jsonl");
  ASSERT_EQ(mkfifo((folder / "rank-00000.r0/index.jsonl").c_str(), 0600), 0);
  ExpectCorrupt(folder.path(), "not a regular file");
}

TEST(CreateTraceFolder, WritesAManifestWithTheFormat) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder / "a/b", R"({"z":1,"a":{"k":[1.5,null]}})",
                          false));
  EXPECT_EQ(
      FileText(folder / "a/b/manifest.json"),
      "{\n  \"format\": \"ttrace\",\n  \"version\": 4,\n  \"z\": 1,\n"
      "  \"a\": {\n    \"k\": [\n      1.5,\n      null\n    ]\n  }\n}\n");
}

TEST(CreateTraceFolder, RefusesWhatIsNotAnObject) {
  const ScratchFolder folder;
  for (const std::string& json :
       {std::string(), std::string("[]"), std::string("{"),
        std::string("{\"a\":\"\xFF\"}"),
        "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"}) {
    const Status status = CreateTraceFolder(folder / "new", json, false);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(fs::exists(folder / "new"));
}

TEST(CreateTraceFolder, RefusesAFolderThatIsNotEmpty) {
  const ScratchFolder folder;
  SetFileText(folder / "precious", "data");
  const Status status = CreateTraceFolder(folder.path(), "{}", false);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
}

TEST(CreateTraceFolder, WithForceRemovesTheOldTraceAndNothingElse) {
  const ScratchFolder folder;
  WriteRanks(folder.path(), 2);
  SetFileText(folder / "precious", "data");
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  EXPECT_EQ(FileText(folder / "precious"), "data");
  EXPECT_FALSE(fs::exists(folder / "rank-00000.r0"));
  EXPECT_TRUE(fs::exists(folder / "manifest.json"));
}

}  // namespace
}  // namespace ttrace::folder_test
