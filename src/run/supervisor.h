// A process that ends a run whose ttrace died without a chance to (SIGKILL).
//
// It waits at one end of a pipe, of which the other is ours: the kernel closes
// it whatever ends us. It has a session of its own, so that what is sent to our
// group does not reach it.

#ifndef TTRACE_SRC_RUN_SUPERVISOR_H_
#define TTRACE_SRC_RUN_SUPERVISOR_H_

#include <sys/types.h>

#include <string>

namespace ttrace {

class Supervisor {
 public:
  // From here on, the processes of `run_id` do not outlive this process. No
  // effect if the system has no process left to give.
  Supervisor(const std::string& run_id, double grace_seconds);
  // The run is over.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

 private:
  pid_t pid_ = -1;
  int write_end_ = -1;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_SUPERVISOR_H_
