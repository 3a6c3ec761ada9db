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

// A process of some run: of ours, of another ttrace, or of one that is gone.
struct RunProcess {
  pid_t pid = 0;
  std::string run_id;
  std::string trace;   // the folder its ranks write to
  bool locks = false;  // its ttrace holds that folder as long as it lives
};

// As FindRunProcesses, with all that is known of them.
std::vector<RunProcess> FindSurvivors(const std::string& run_id);

// Live processes of any run that write to `folder` or below it.
std::vector<RunProcess> FindWriters(const std::string& folder);

// Live processes of runs whose ttrace is gone: nobody holds their trace folder
// (folder_lock.h).
std::vector<RunProcess> FindOrphans();

// "process 123", "processes 123, 124 and 3 more".
std::string PidWords(const std::vector<RunProcess>& processes);

// SIGTERM to all of them, SIGKILL to those that are left after
// `grace_seconds`. Returns how many there were. On return none is left, except
// one that not even SIGKILL ends at once (uninterruptible I/O).
int EndRunProcesses(const std::string& run_id, double grace_seconds);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_ORPHAN_RANKS_H_
