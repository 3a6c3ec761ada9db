#include "src/run/doctor/machine.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <system_error>

#include "src/base/format.h"
#include "src/run/free_space.h"
#include "src/trace/file.h"

namespace ttrace {
namespace {

// A captured iteration of a model of 100 million parameters, with its reruns
// (docs/trace_cost.md).
constexpr double kLittleSpace = 4e9;
// What Docker gives a container that asks for nothing: a few batches fill it.
constexpr double kLittleSharedMemory = 256e6;
// Two ranks that import torch and a framework.
constexpr double kLittleMemory = 2e9;
// A rank reads and writes a segment, sockets of its peers and those of a
// loader.
constexpr rlim_t kFewFiles = 1024;
// torch with CUDA reserves more than this of address space for nothing.
constexpr rlim_t kLittleAddressSpace = rlim_t{64} << 30;

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<double> AvailableMemory() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    double kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:") {
      return kibibytes * 1024;
    }
  }
  return std::nullopt;
}

// What the control group of a container or a job allows, beyond what it uses.
std::optional<double> MemoryOfGroup() {
  const std::string limit = FirstLine("/sys/fs/cgroup/memory.max");
  const std::string used = FirstLine("/sys/fs/cgroup/memory.current");
  try {
    return std::stod(limit) - std::stod(used);
  } catch (const std::exception&) {  // "max", or no such file
    return std::nullopt;
  }
}

bool IsUnlimited(rlim_t limit) { return limit == RLIM_INFINITY; }

}  // namespace

void LookAtFolder(const std::string& folder, HealthList* out) {
  const std::string shown = Printable(folder);
  std::error_code missing;
  if (!std::filesystem::is_directory(folder, missing)) {
    out->Broken("folder", "'" + shown + "' is no folder",
                "make it, or give another: --folder DIR");
    return;
  }
  // The file of a trace, as it will be written: root may write where the mode
  // says otherwise, and a read-only file system says nothing in its mode.
  std::string name = (std::filesystem::path(folder) / "ttrace-XXXXXX").string();
  const int descriptor = ::mkstemp(name.data());
  if (descriptor < 0) {
    out->Broken("folder",
                "cannot write in '" + shown +
                    "': " + std::generic_category().message(errno),
                "record to a folder elsewhere, and try that: --folder DIR");
    return;
  }
  ::close(descriptor);
  ::unlink(name.c_str());
  const auto space = SpaceOf(folder);
  if (!space) {
    out->Doubtful("folder", "'" + shown + "' does not say how much it takes",
                  "");
  } else if (space->free < kLittleSpace) {
    out->Doubtful("folder",
                  "'" + shown + "' has " + FormatBytes(space->free) +
                      " left; a trace with values takes gigabytes",
                  "record to another disk, or less: `ttrace record --mode "
                  "sketch`, `--select`");
  } else {
    out->Well("folder",
              "'" + shown + "' takes " + FormatBytes(space->free) + " more");
  }
}

void LookAtSharedMemory(const std::string& folder, HealthList* out) {
  const auto space = SpaceOf(folder);
  std::error_code missing;
  if (!space || !std::filesystem::is_directory(folder, missing)) {
    out->Doubtful("shared memory", "there is no " + Printable(folder),
                  "mount a tmpfs there: loaders with workers need it");
  } else if (space->free < kLittleSharedMemory) {
    out->Doubtful("shared memory",
                  Printable(folder) + " has " + FormatBytes(space->free) +
                      " left: loaders with workers die of that (SIGBUS)",
                  "give the container more: docker run --shm-size 8g, or "
                  "--ipc host");
  } else {
    out->Well("shared memory",
              Printable(folder) + " has " + FormatBytes(space->free) + " left");
  }
}

void LookAtMemoryAndCores(HealthList* out) {
  std::optional<double> memory = AvailableMemory();
  const std::optional<double> group = MemoryOfGroup();
  if (group) {
    memory = std::min(*group,
                      memory.value_or(std::numeric_limits<double>::infinity()));
  }
  if (!memory) {
    out->Doubtful("memory", "the system does not say how much is left", "");
  } else if (*memory < kLittleMemory) {
    out->Doubtful("memory",
                  FormatBytes(*memory) +
                      " left: that may be too little for two ranks with torch",
                  "end what else runs, or ask for more");
  } else {
    out->Well("memory", FormatBytes(*memory) + " left");
  }
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const int count = ::sched_getaffinity(0, sizeof(cores), &cores) == 0
                        ? CPU_COUNT(&cores)
                        : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (count < 2) {
    out->Doubtful("cores",
                  "1 for all ranks, and for what capture writes beside them",
                  "expect a recorded step to take longer than with two");
  } else {
    out->Well("cores", std::to_string(count));
  }
}

void LookAtLimits(HealthList* out) {
  bool well = true;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kFewFiles &&
      !IsUnlimited(limit.rlim_cur)) {
    well = false;
    out->Doubtful(
        "limits",
        std::to_string(limit.rlim_cur) +
            " open files (ulimit -n): loaders and ranks run out",
        "ulimit -n " + std::to_string(std::min<rlim_t>(limit.rlim_max, 65536)));
  }
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && !IsUnlimited(limit.rlim_cur) &&
      limit.rlim_cur < kLittleAddressSpace) {
    well = false;
    out->Doubtful("limits",
                  FormatBytes(static_cast<double>(limit.rlim_cur)) +
                      " of address space (ulimit -v): torch reserves much that "
                      "it does not use",
                  "ulimit -v unlimited");
  }
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && !IsUnlimited(limit.rlim_cur)) {
    well = false;
    out->Doubtful("limits",
                  FormatBytes(static_cast<double>(limit.rlim_cur)) +
                      " a file (ulimit -f): a trace that reaches it ends there",
                  "ulimit -f unlimited");
  }
  if (well) out->Well("limits", "open files, address space and files are fine");
}

std::string GpuDriver() {
  const std::string line = FirstLine("/proc/driver/nvidia/version");
  std::error_code ignored;
  if (line.empty() && std::filesystem::exists("/dev/nvidiactl", ignored)) {
    return "NVIDIA, of a version that it does not say";
  }
  return line;
}

void LookAtPath(const std::string& path, const std::string& own,
                HealthList* out) {
  std::error_code ignored;
  const auto mine = std::filesystem::path(own) / "ttrace";
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty()) continue;  // the working folder: not for a command
    const auto found = std::filesystem::path(folder) / "ttrace";
    if (::access(found.c_str(), X_OK) != 0 ||
        std::filesystem::is_directory(found, ignored)) {
      continue;
    }
    if (std::filesystem::equivalent(found, mine, ignored)) {
      out->Well("command", "`ttrace` is " + Printable(found.string()));
    } else {
      out->Doubtful("command",
                    "`ttrace` is " + Printable(found.string()) +
                        ", another one than this (" + Printable(mine.string()) +
                        ")",
                    "put " + Printable(own) +
                        " in front of PATH, or take the "
                        "other one away");
    }
    return;
  }
  out->Doubtful(
      "command",
      "`ttrace` is in no folder of PATH; this one is in " + Printable(own),
      "put that folder into PATH");
}

}  // namespace ttrace
