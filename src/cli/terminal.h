// What is different when a person looks on: colour, width, and a line that
// shows that something is going on.

#ifndef TTRACE_SRC_CLI_TERMINAL_H_
#define TTRACE_SRC_CLI_TERMINAL_H_

#include <chrono>
#include <mutex>
#include <string>

#include "src/report/render.h"

namespace ttrace {

// For standard output: colour only on a terminal and unless NO_COLOR is set to
// something (no-color.org), and the width of the terminal.
TerminalOptions StandardOutputOptions();

// One line on stderr, rewritten in place a few times a second, and gone in the
// end. Shows nothing unless stderr is a terminal.
//
// Thread safety: Show from many threads.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(const std::string& text);
  void Clear();

 private:
  const bool active_;
  std::mutex mutex_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_TERMINAL_H_
