#include "src/run/orphan_ranks.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string_view>
#include <thread>

namespace ttrace {
namespace {

using Clock = std::chrono::steady_clock;

// Whether `entry` is one of the NUL-separated strings of the environment with
// which a process was started. False if it may not be read or is gone.
bool StartedWith(pid_t pid, std::string_view entry) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ",
                     std::ios::binary);
  const std::string environment((std::istreambuf_iterator<char>(file)), {});
  for (size_t at = environment.find(entry); at != std::string::npos;
       at = environment.find(entry, at + 1)) {
    const size_t end = at + entry.size();
    const bool begins = at == 0 || environment[at - 1] == '\0';
    const bool ends = end == environment.size() || environment[end] == '\0';
    if (begins && ends) return true;
  }
  return false;
}

// The processes that are there after at most `limit`; returns as soon as there
// are none.
std::vector<pid_t> WaitUntilGone(const std::string& run_id,
                                 Clock::duration limit) {
  const auto deadline = Clock::now() + limit;
  while (true) {
    std::vector<pid_t> left = FindRunProcesses(run_id);
    if (left.empty() || Clock::now() >= deadline) return left;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

std::vector<pid_t> FindRunProcesses(const std::string& run_id) {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (proc == nullptr) return found;
  const std::string entry = "TTRACE_RUN_ID=" + run_id;
  while (const dirent* item = readdir(proc.get())) {
    const std::string_view name = item->d_name;
    pid_t pid = 0;
    const auto parsed =
        std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) {
      continue;
    }
    if (pid != getpid() && StartedWith(pid, entry)) found.push_back(pid);
  }
  return found;
}

int EndRunProcesses(const std::string& run_id, double grace_seconds) {
  std::set<pid_t> seen;
  // A process may start another between our look and our signal, so look again
  // after each round. Rounds without end are not possible after SIGKILL.
  for (const pid_t pid : FindRunProcesses(run_id)) {
    seen.insert(pid);
    kill(pid, SIGTERM);
  }
  if (seen.empty()) return 0;
  std::vector<pid_t> left =
      WaitUntilGone(run_id, std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(grace_seconds)));
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds && !left.empty(); ++round) {
    for (const pid_t pid : left) {
      seen.insert(pid);
      kill(pid, SIGKILL);
    }
    left = WaitUntilGone(run_id, std::chrono::milliseconds(250));
  }
  return static_cast<int>(seen.size());
}

}  // namespace ttrace
