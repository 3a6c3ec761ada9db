// File: pread and pwrite whose failures are Errors and never signals.
//
// Thread safety: ReadAt from many threads; everything else by one.

#ifndef TTRACE_SRC_TRACE_FILE_H_
#define TTRACE_SRC_TRACE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ttrace/status.h"

namespace ttrace {

// What becomes of a symbolic link in a file's place. (Folders on the way to it
// may always be links.) Inside a trace it could lead anywhere; a path that the
// user gave may be one.
enum class Links { kRefuse, kFollow };

class File {
 public:
  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // Creates `path` for writing. Fails with kIo if it exists.
  static Result<File> Create(std::string path);
  // A file in `folder` without a name, for writing and reading: it ends with
  // the process, however that ends.
  static Result<File> CreateUnnamed(const std::string& folder);
  // Opens a regular file for reading. Anything else (a FIFO would block for
  // ever) is kCorrupt, a missing file kNotFound.
  static Result<File> Open(std::string path, Links links = Links::kRefuse);

  bool is_open() const { return descriptor_ >= 0; }
  const std::string& path() const { return path_; }

  // Writes all of `bytes`. A full disk and RLIMIT_FSIZE give kIo: SIGXFSZ,
  // which would end the process, is blocked and taken back around the call.
  Status WriteAt(std::span<const std::byte> bytes, int64_t offset);

  // Reads up to out.size() bytes; fewer only at the end of the file.
  Result<size_t> ReadAt(std::span<std::byte> out, int64_t offset) const;

  Result<int64_t> Size() const;

  // fdatasync. A file system that cannot do it is taken to need none.
  Status Sync();

 private:
  File(int descriptor, std::string path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  Error Failed(std::string_view what, int error_number) const;

  int descriptor_ = -1;
  std::string path_;
};

// The bytes of a small text file. Fails with kCorrupt beyond `max_bytes`.
Result<std::string> ReadWholeFile(const std::string& path, size_t max_bytes,
                                  Links links = Links::kRefuse);

// Writes beside `path`, then renames: whoever opens it sees all or nothing.
Status WriteFileAtomically(const std::string& path, std::string_view text);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_FILE_H_
