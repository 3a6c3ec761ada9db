#include "src/run/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "src/run/orphan_ranks.h"

namespace ttrace {
namespace {

// Runs in a process of its own, forked while this one has a single thread that
// may hold a lock; glibc leaves memory allocation usable there.
[[noreturn]] void Watch(int read_end, const std::string& run_id,
                        double grace_seconds) {
  setsid();
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) {
    signal(number, SIG_IGN);
  }
  // Whoever reads our output waits for its end; locks are shared with us.
  dup2(read_end, STDIN_FILENO);
  close(STDOUT_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, 0);
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(STDIN_FILENO, &byte, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) {
    const int ended = EndRunProcesses(run_id, grace_seconds);
    if (ended > 0) {
      dprintf(STDERR_FILENO,
              "ttrace: was killed; %d process%s of its command %s ended too\n",
              ended, ended == 1 ? "" : "es", ended == 1 ? "is" : "are");
    }
  }
  _exit(0);
}

}  // namespace

Supervisor::Supervisor(const std::string& run_id, double grace_seconds) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    Watch(ends[0], run_id, grace_seconds);
  }
  close(ends[0]);
  write_end_ = ends[1];
}

Supervisor::~Supervisor() {
  if (write_end_ < 0) return;
  const auto old = signal(SIGPIPE, SIG_IGN);
  const char byte = 0;
  if (write(write_end_, &byte, 1) < 0) {
    // It is gone already: nothing is left to tell.
  }
  signal(SIGPIPE, old);
  close(write_end_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

}  // namespace ttrace
