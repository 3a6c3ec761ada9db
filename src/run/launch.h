// Runs somebody else's command, waits for it, and leaves nothing behind.
//
// The processes of a run are more than the command's own: torchrun starts its
// workers in sessions of their own, where no signal to a process group reaches
// them and where they survive their agent. They are found by the run's id in
// their environment (orphan_ranks.h).
//
// Thread safety: one launch at a time per process, because a command may share
// the terminal.

#ifndef TTRACE_SRC_RUN_LAUNCH_H_
#define TTRACE_SRC_RUN_LAUNCH_H_

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "src/run/orphan_ranks.h"
#include "ttrace/status.h"

namespace ttrace {

// Set by the program's signal handlers, watched by Launch.
struct InterruptFlag {
  std::atomic<int> signal{0};  // the first one, e.g. SIGINT; 0: none
  std::atomic<int> count{0};
};

struct LaunchOptions {
  std::vector<std::string> argv;         // argv[0] is searched for in PATH
  std::vector<std::string> environment;  // all of it, as "NAME=value"
  // Value of TTRACE_RUN_ID in `environment`.
  std::string run_id;
  // Output goes here; empty: passes through, as does standard input. With a log
  // file, standard input is empty, and output that comes after the end of the
  // launch has no reader: such a command's leftovers are to be ended.
  std::string log_file;
  // End what is left of the run after the command has ended by itself.
  // `record` does not: a command may start what is meant to outlive it. After
  // a command that was killed, everything is ended in any case.
  bool end_leftovers = false;
  // From a request to end until SIGKILL.
  double grace_seconds = 10;
  // Beyond this, the command is ended; 0: it may take as long as it likes.
  double timeout_seconds = 0;
  // Asked a few times a second. kEnd ends the command; kEndSoon gives it
  // `grace_seconds` to end by itself before that.
  enum class Wish { kGoOn, kEndSoon, kEnd };
  std::function<Wish()> look;
  const InterruptFlag* interrupt = nullptr;
};

struct LaunchOutcome {
  enum class Ending {
    kExited,       // by itself, with exit_code
    kSignalled,    // died of `signal`
    kFinished,     // ended by us because of kEnd
    kStopped,      // ended by us because of kEndSoon
    kTimedOut,     // ended by us after timeout_seconds
    kInterrupted,  // ended by us because of `signal`, which we received
  };
  Ending ending = Ending::kExited;
  int exit_code = 0;
  int signal = 0;
  double seconds = 0;
  int leftovers = 0;  // processes that outlived the command and were ended
  // Processes that outlived the command and still run.
  std::vector<RunProcess> survivors;
  // The end of its output, at most 64 KiB, as far as it can be known: with a
  // log file, or where standard error is a file.
  std::string output_tail;
  std::string log_problem;  // why the log file lacks output, or ""
};

// Runs the command to its end. Fails with kNotFound if it does not exist, with
// kIo if it cannot be started or its log file cannot be written.
Result<LaunchOutcome> Launch(const LaunchOptions& options);

// What a shell would report: the exit code, or 128 + signal; 124, as
// timeout(1), for kTimedOut. 0 for kFinished and kStopped.
int ShellExitCode(const LaunchOutcome& outcome);

// "exited with code 3", "was killed by SIGKILL (...)", "was interrupted".
std::string Describe(const LaunchOutcome& outcome);

// The last `lines` lines of a text, without anything that a terminal would act
// on.
std::vector<std::string> LastLines(const std::string& text, int lines);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_LAUNCH_H_
