// For tests: a folder that goes away, and small traces in it.

#ifndef TTRACE_SRC_TRACE_TESTING_SCRATCH_TRACE_H_
#define TTRACE_SRC_TRACE_TESTING_SCRATCH_TRACE_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/format.h"
#include "src/trace/reader.h"
#include "src/trace/writer.h"

namespace ttrace {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "ttrace-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

inline std::string FileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline void SetFileText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Overwrites one byte in place. Rewriting the file, thousands of times over,
// would wait for the disk each time: file systems flush a file that was
// truncated and written anew.
inline void SetFileByte(const std::string& path, size_t at, char value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at)).write(&value, 1);
}

// Rank `rank` of a mesh of one dimension.
inline RankMeta TensorParallelMeta(int rank, int world_size) {
  RankMeta meta;
  meta.rank = rank;
  meta.world_size = world_size;
  meta.mesh.dims = {{"tp", world_size}};
  meta.coordinate = {rank};
  return meta;
}

// A replicated tensor.
inline RecordSpec PlainSpec(const std::string& fqn, DType dtype, Shape shape) {
  RecordSpec spec;
  spec.fqn = fqn;
  spec.arg = "0";
  spec.dtype = dtype;
  spec.local_shape = shape;
  spec.global_shape = std::move(shape);
  return spec;
}

inline Occurrence RealOccurrence(int iteration = 0) {
  Occurrence occurrence;
  occurrence.leg = "real";
  occurrence.iteration = iteration;
  return occurrence;
}

inline Status AppendFloats(TraceWriter& writer, const std::string& fqn,
                           const std::vector<float>& values,
                           int iteration = 0) {
  const Shape shape = {static_cast<int64_t>(values.size())};
  const std::vector<int64_t> strides = {1};
  return writer.Append(PlainSpec(fqn, DType::kF32, shape),
                       RealOccurrence(iteration),
                       {std::as_bytes(std::span(values)).data(), strides});
}

inline std::vector<float> ReadFloats(const Trace& trace, const Record& record) {
  std::vector<float> values(static_cast<size_t>(record.extent().bytes) /
                            sizeof(float));
  const Status status =
      trace.Read(record, 0, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status.error().message();
  return values;
}

// Gives the value of a Result, or fails the test and gives nothing to use.
template <typename T>
T OrDie(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message();
    std::abort();
  }
  return *std::move(result);
}

inline std::unique_ptr<TraceWriter> OpenRank(const std::string& folder,
                                             int rank, int world_size) {
  return OrDie(TraceWriter::Open(folder, TensorParallelMeta(rank, world_size)));
}

// One rank, two records, a seal, a note, a third record, and the end if
// `closed`.
inline void WriteSmallTrace(const std::string& folder, bool closed) {
  OrDie(CreateTraceFolder(folder, R"({"command": ["python", "x.py"]})", true));
  const auto writer = OpenRank(folder, 0, 1);
  OrDie(AppendFloats(*writer, "first", {1, 2, 3}));
  OrDie(AppendFloats(*writer, "second", {4, 5}));
  OrDie(writer->Seal(0, "real"));
  OrDie(writer->Note("notice", R"({"what": "a note"})"));
  OrDie(AppendFloats(*writer, "third", {6}, 1));
  if (closed) OrDie(writer->Close(true, ""));
}

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_TESTING_SCRATCH_TRACE_H_
