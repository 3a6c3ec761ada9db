#include "src/trace/file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace ttrace {
namespace {

Error IoError(std::string_view what, const std::string& path,
              int error_number) {
  std::string message = "cannot ";
  message.append(what).append(" '").append(path).append("': ");
  // Not strerror, which other threads overwrite.
  message.append(std::generic_category().message(error_number));
  return Error(error_number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               std::move(message));
}

int OpenRetrying(const std::string& path, int flags) {
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// Blocks SIGXFSZ in this thread for as long as it lives. The kernel sends it to
// the writing thread, so that a blocked one stays pending here and can be taken
// back before the mask is restored. Signal dispositions are left alone: they
// belong to the process, and other threads may write, too.
class FileSizeSignalGuard {
 public:
  FileSizeSignalGuard() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  FileSizeSignalGuard(const FileSizeSignalGuard&) = delete;
  FileSizeSignalGuard& operator=(const FileSizeSignalGuard&) = delete;
  ~FileSizeSignalGuard() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  void TakeBack() {
    if (was_pending_) return;  // It is somebody else's.
    const timespec now = {0, 0};
    while (sigtimedwait(&signal_, nullptr, &now) < 0 && errno == EINTR) {
    }
  }

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Error File::Failed(std::string_view what, int error_number) const {
  return IoError(what, path_, error_number);
}

Result<File> File::Create(std::string path) {
  const int descriptor = OpenRetrying(path, O_WRONLY | O_CREAT | O_EXCL);
  if (descriptor < 0) return IoError("create", path, errno);
  return File(descriptor, std::move(path));
}

Result<File> File::CreateUnnamed(const std::string& folder) {
  std::string path = folder + "/aside-XXXXXX";
  const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0) return IoError("create", path, errno);
  File file(descriptor, path);
  if (::unlink(path.c_str()) != 0) return file.Failed("unlink", errno);
  return file;
}

Result<File> File::Open(std::string path, Links links) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const int descriptor = OpenRetrying(
      path, O_RDONLY | O_NONBLOCK | (links == Links::kRefuse ? O_NOFOLLOW : 0));
  if (descriptor < 0 && errno == ELOOP && links == Links::kRefuse) {
    return Error(ErrorCode::kCorrupt, "'" + path + "' is a symbolic link");
  }
  if (descriptor < 0) return IoError("open", path, errno);
  File file(descriptor, std::move(path));
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) return file.Failed("stat", errno);
  if (!S_ISREG(status.st_mode)) {
    return Error(ErrorCode::kCorrupt,
                 "'" + file.path_ + "' is not a regular file");
  }
  return file;
}

Status File::WriteAt(std::span<const std::byte> bytes, int64_t offset) {
  FileSizeSignalGuard guard;
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0) {
      const int error_number = errno;
      if (error_number == EINTR) continue;
      if (error_number == EFBIG) guard.TakeBack();
      return Failed("write", error_number);
    }
    if (written == 0) return Failed("write", ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return Done{};
}

Result<size_t> File::ReadAt(std::span<std::byte> out, int64_t offset) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(descriptor_, out.data() + done, out.size() - done,
                offset + static_cast<int64_t>(done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return Failed("read", errno);
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

Result<int64_t> File::Size() const {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0) return Failed("stat", errno);
  return static_cast<int64_t>(status.st_size);
}

Status File::Sync() {
  int result;
  do {
    result = ::fdatasync(descriptor_);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EINVAL && errno != ENOSYS) {
    return Failed("flush", errno);
  }
  return Done{};
}

Result<std::string> ReadWholeFile(const std::string& path, size_t max_bytes,
                                  Links links) {
  TTRACE_ASSIGN_OR_RETURN(const File file, File::Open(path, links));
  TTRACE_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  if (static_cast<uint64_t>(size) > max_bytes) {
    return Error(ErrorCode::kCorrupt,
                 "'" + path + "' has " + std::to_string(size) +
                     " bytes; at most " + std::to_string(max_bytes) +
                     " are plausible");
  }
  std::string text(static_cast<size_t>(size), '\0');
  TTRACE_ASSIGN_OR_RETURN(
      const size_t got,
      file.ReadAt(std::as_writable_bytes(std::span(text)), 0));
  text.resize(got);
  return text;
}

Status WriteFileAtomically(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  ::unlink(temporary.c_str());  // What a writer that died left behind.
  {
    TTRACE_ASSIGN_OR_RETURN(File file, File::Create(temporary));
    Status written = file.WriteAt(std::as_bytes(std::span(text)), 0);
    if (written.ok()) written = file.Sync();
    if (!written.ok()) {
      ::unlink(temporary.c_str());  // A full disk has better uses.
      return written;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    return IoError("rename to", path, errno);
  }
  return Done{};
}

}  // namespace ttrace
