#include "src/run/output_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "src/base/format.h"

namespace ttrace {
namespace {

constexpr size_t kTail = 64 << 10;

}  // namespace

Result<std::unique_ptr<OutputLog>> OutputLog::Open(const std::string& path) {
  const int file =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) {
    return Error(ErrorCode::kIo,
                 "cannot write " + Printable(path) + ": " + strerror(errno));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    const int error = errno;
    close(file);
    return Error(ErrorCode::kIo, std::string("pipe: ") + strerror(error));
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<OutputLog>(new OutputLog(file, ends[0], ends[1]));
}

OutputLog::~OutputLog() {
  Stop();
  close(read_end_);
  close(file_);
}

void OutputLog::Start() {
  close(write_end_);
  write_end_ = -1;
  reader_ = std::thread([this] { Run(); });
}

void OutputLog::Stop() {
  stop_ = true;
  if (reader_.joinable()) reader_.join();
  if (write_end_ >= 0) close(write_end_);
  write_end_ = -1;
}

void OutputLog::Run() {
  while (true) {
    // Before looking, so that what was written before Stop is taken.
    const bool last = stop_;
    pollfd descriptor{read_end_, POLLIN, 0};
    const int ready = poll(&descriptor, 1, last ? 0 : 100);
    if (ready > 0 && !TakeSome()) return;
    if (ready == 0 && last) return;
  }
}

bool OutputLog::TakeSome() {
  std::array<char, 16 << 10> buffer;
  const ssize_t got = read(read_end_, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  const auto size = static_cast<size_t>(got);
  tail_.append(buffer.data(), size);
  if (tail_.size() > 2 * kTail) tail_.erase(0, tail_.size() - kTail);
  Write(buffer.data(), size);
  return true;
}

void OutputLog::Write(const char* data, size_t size) {
  while (problem_.empty() && size > 0) {
    const ssize_t written = write(file_, data, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      problem_ = strerror(errno);
      return;
    }
    data += written;
    size -= static_cast<size_t>(written);
  }
}

}  // namespace ttrace
