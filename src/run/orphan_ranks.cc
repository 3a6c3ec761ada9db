#include "src/run/orphan_ranks.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "src/run/folder_lock.h"

namespace ttrace {
namespace {

using Clock = std::chrono::steady_clock;

// The value of a variable in the environment with which a process was started:
// NUL-separated "NAME=value". Empty if there is none.
std::string ValueIn(const std::string& environment, std::string_view name) {
  const std::string key = std::string(name) + "=";
  for (size_t at = environment.find(key); at != std::string::npos;
       at = environment.find(key, at + 1)) {
    if (at != 0 && environment[at - 1] != '\0') continue;
    const size_t begin = at + key.size();
    return environment.substr(begin, environment.find('\0', begin) - begin);
  }
  return "";
}

// All processes of all runs, except this one. Those that may not be read are
// passed over.
std::vector<RunProcess> FindAll() {
  std::vector<RunProcess> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (proc == nullptr) return found;
  while (const dirent* item = readdir(proc.get())) {
    const std::string_view name = item->d_name;
    pid_t pid = 0;
    const auto parsed =
        std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size() ||
        pid == getpid()) {
      continue;
    }
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ",
                       std::ios::binary);
    const std::string environment((std::istreambuf_iterator<char>(file)), {});
    const std::string run_id = ValueIn(environment, "TTRACE_RUN_ID");
    if (run_id.empty()) continue;
    found.push_back({pid, run_id, ValueIn(environment, "TTRACE_OUT"),
                     ValueIn(environment, "TTRACE_LOCKS") == "1"});
  }
  return found;
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
  for (const RunProcess& process : FindAll()) {
    if (process.run_id == run_id) found.push_back(process.pid);
  }
  return found;
}

std::vector<RunProcess> FindSurvivors(const std::string& run_id) {
  std::vector<RunProcess> found = FindAll();
  std::erase_if(found, [&](const RunProcess& process) {
    return process.run_id != run_id;
  });
  return found;
}

std::vector<RunProcess> FindWriters(const std::string& folder) {
  std::error_code ignored;
  const std::string place =
      std::filesystem::weakly_canonical(folder, ignored).string();
  std::vector<RunProcess> found;
  for (RunProcess& process : FindAll()) {
    const std::string trace =
        std::filesystem::weakly_canonical(process.trace, ignored).string();
    if (trace == place || trace.starts_with(place + "/")) {
      found.push_back(std::move(process));
    }
  }
  return found;
}

std::vector<RunProcess> FindOrphans() {
  std::vector<RunProcess> found;
  std::map<std::string, bool> held;
  for (RunProcess& process : FindAll()) {
    // Started by an earlier version, or not by ttrace at all.
    if (!process.locks) continue;
    const auto [known, added] = held.try_emplace(process.trace, false);
    if (added) {
      // Without the folder, or on a file system without locks, one cannot tell.
      known->second = !std::filesystem::is_directory(process.trace) ||
                      MayBeLocked(process.trace);
    }
    if (!known->second) found.push_back(std::move(process));
  }
  return found;
}

std::string PidWords(const std::vector<RunProcess>& processes) {
  constexpr size_t kMaxListed = 8;
  std::string text = processes.size() == 1 ? "process " : "processes ";
  for (size_t i = 0; i < std::min(processes.size(), kMaxListed); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(processes[i].pid);
  }
  if (processes.size() > kMaxListed) {
    text += " and " + std::to_string(processes.size() - kMaxListed) + " more";
  }
  return text;
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
