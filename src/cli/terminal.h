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
// end. Where stderr is no terminal (the log of a job), a line of its own for
// each phase, and from time to time for a phase that takes long.
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

  // A phase has begun or ended. On a terminal the rewritten line says enough.
  void Phase(const std::string& text);

 private:
  const bool active_;
  std::mutex mutex_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_ =
      std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration patience_ = std::chrono::seconds(30);
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_TERMINAL_H_
