// Finds and ends the processes of a run, wherever they are: by the run's id in
// the environment with which they were started (/proc/<pid>/environ). Parents,
// groups and sessions say nothing: a torchrun worker has its own session, and
// init as its parent once its agent is gone.

#ifndef TTRACE_SRC_RUN_ORPHAN_RANKS_H_
#define TTRACE_SRC_RUN_ORPHAN_RANKS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace ttrace {

// Live processes with TTRACE_RUN_ID=<run_id>, except this one. Those of other
// users cannot be read and are not found.
std::vector<pid_t> FindRunProcesses(const std::string& run_id);

// SIGTERM to all of them, SIGKILL to those that are left after
// `grace_seconds`. Returns how many there were. On return none is left, except
// one that not even SIGKILL ends at once (uninterruptible I/O).
int EndRunProcesses(const std::string& run_id, double grace_seconds);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_ORPHAN_RANKS_H_
