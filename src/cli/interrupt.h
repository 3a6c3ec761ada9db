// SIGINT and SIGTERM, turned into a flag while a command runs.

#ifndef TTRACE_SRC_CLI_INTERRUPT_H_
#define TTRACE_SRC_CLI_INTERRUPT_H_

#include <signal.h>

#include "src/run/launch.h"

namespace ttrace {

// Catches the signals for as long as it lives and then gives them back to whom
// they belonged (Python has handlers of its own). One at a time per process.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // Whether there is one now.
  static bool exists();

  const InterruptFlag* flag() const;
  bool interrupted() const { return flag()->signal.load() != 0; }
  // 130 for SIGINT, 143 for SIGTERM.
  int exit_code() const { return 128 + flag()->signal.load(); }

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
  struct sigaction old_hup_ {};
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_INTERRUPT_H_
