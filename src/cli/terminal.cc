#include "src/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

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

int WidthOfStandardError() { return TerminalWidth(STDERR_FILENO); }

}  // namespace ttrace
