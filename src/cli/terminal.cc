#include "src/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "src/base/format.h"

namespace ttrace {
namespace {

constexpr int kUsualWidth = 80;
// Beyond this, lines of prose are hard to read.
constexpr int kWidest = 120;

int TerminalWidth(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return kUsualWidth;
  }
  return std::min<int>(size.ws_col, kWidest);
}

}  // namespace

TerminalOptions StandardOutputOptions() {
  TerminalOptions options;
  if (isatty(STDOUT_FILENO) == 0) return options;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  options.color = (no_color == nullptr || *no_color == '\0') &&
                  term != nullptr && std::string_view(term) != "dumb";
  options.width = TerminalWidth(STDOUT_FILENO);
  return options;
}

ProgressLine::ProgressLine() : active_(isatty(STDERR_FILENO) != 0) {}

void ProgressLine::Show(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (!active_) {
    if (now - last_ < patience_) return;
    last_ = now;
    patience_ *= 2;
    std::fprintf(stderr, "ttrace: %s\n", text.c_str());
    std::fflush(stderr);
    return;
  }
  if (shown_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  const auto width = static_cast<size_t>(TerminalWidth(STDERR_FILENO) - 1);
  const std::string line = ShortenMiddle(text, width);
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
}

void ProgressLine::Phase(const std::string& text) {
  if (active_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::fprintf(stderr, "ttrace: %s\n", text.c_str());
  std::fflush(stderr);
}

void ProgressLine::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace ttrace
