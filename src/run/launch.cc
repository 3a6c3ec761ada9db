#include "src/run/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "src/base/check.h"
#include "src/base/format.h"
#include "src/run/orphan_ranks.h"
#include "src/run/output_log.h"
#include "src/run/supervisor.h"

namespace ttrace {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds));
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& s : strings) {
    pointers.push_back(const_cast<char*>(s.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// The started command, from fork to wait.
class Child {
 public:
  // The terminal's own signals reach the whole foreground group, and a
  // background group may not read from it. So a command that shares the
  // terminal stays in our group, and any other gets its own.
  Child(pid_t pid, bool own_group) : pid_(pid), own_group_(own_group) {}

  bool own_group() const { return own_group_; }

  void Signal(int signal) const { kill(own_group_ ? -pid_ : pid_, signal); }

  // The wait status, once the command has ended.
  std::optional<int> Poll() {
    if (!status_) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    }
    return status_;
  }

  // Waits at most `limit`. True if the command has ended.
  bool WaitFor(Clock::duration limit) {
    const auto deadline = Clock::now() + limit;
    while (!Poll() && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(20));
    }
    return Poll().has_value();
  }

 private:
  pid_t pid_;
  bool own_group_;
  std::optional<int> status_;
};

// Runs in the child between fork and exec, where only async-signal-safe calls
// are allowed: everything is prepared before. Never returns.
[[noreturn]] void Exec(char* const* argv, char* const* environment,
                       bool own_group, int input, int output, int report) {
  if (own_group) setpgid(0, 0);
  if (output >= 0) {
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
  }
  // Python ignores these two, and what is ignored stays so across exec: a
  // command would then not die of a closed pipe as it does without us.
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(argv[0], argv, environment);
  const int error = errno;
  const ssize_t written = write(report, &error, sizeof error);
  _exit(written == sizeof error ? 127 : 126);
}

Error Failure(const std::string& what, int error) {
  return Error(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               what + ": " + std::strerror(error));
}

// `output` -1: the command shares our terminal.
Result<Child> Start(const LaunchOptions& options, int output) {
  const bool to_log = output >= 0;
  const Descriptor input(to_log ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Failure("pipe", errno);
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);

  const std::vector<char*> argv = Pointers(options.argv);
  const std::vector<char*> environment = Pointers(options.environment);
  const bool own_group = to_log || isatty(STDIN_FILENO) == 0;
  const pid_t pid = fork();
  if (pid < 0) return Failure("fork", errno);
  if (pid == 0) {
    Exec(argv.data(), environment.data(), own_group, input.get(), output,
         write_end.get());
  }
  // In both processes, because either may come first.
  if (own_group) setpgid(pid, pid);
  write_end.Close();
  int error = 0;
  ssize_t received = 0;
  do {
    received = read(read_end.get(), &error, sizeof error);
  } while (received < 0 && errno == EINTR);
  if (received == sizeof error) {
    waitpid(pid, nullptr, 0);
    return Failure("cannot run " + Printable(options.argv[0]), error);
  }
  return Child(pid, own_group);
}

// Ends a command that still runs: `signal`, then, for what is left, SIGTERM and
// SIGKILL. Returns how many processes outlived the command.
int End(Child& child, int signal, const LaunchOptions& options) {
  // What the terminal sends has reached a command that shares it.
  if (child.own_group() || signal != SIGINT) child.Signal(signal);
  const int before = options.interrupt ? options.interrupt->count.load() : 0;
  const auto deadline = Clock::now() + Seconds(options.grace_seconds);
  bool hurry = false;
  while (!hurry && Clock::now() < deadline &&
         !child.WaitFor(milliseconds(50))) {
    hurry = options.interrupt != nullptr &&
            options.interrupt->count.load() > std::max(before, 1);
  }
  if (!child.Poll()) {
    EndRunProcesses(options.run_id, hurry ? 0 : 2);
    child.Signal(SIGKILL);
    child.WaitFor(std::chrono::seconds(5));
  }
  return EndRunProcesses(options.run_id, hurry ? 0 : options.grace_seconds);
}

// The end of what is written to our standard error from here on, where that is
// a file.
class OwnErrorFile {
 public:
  OwnErrorFile() {
    struct stat status {};
    if (fstat(STDERR_FILENO, &status) != 0 || !S_ISREG(status.st_mode)) return;
    is_file_ = true;
    begin_ = status.st_size;
  }

  std::string Tail() const {
    if (!is_file_) return "";
    std::ifstream file("/proc/self/fd/2", std::ios::binary | std::ios::ate);
    if (!file) return "";
    constexpr std::streamoff kTail = 64 << 10;
    const std::streamoff end = file.tellg();
    file.seekg(std::max<std::streamoff>(begin_, end - kTail));
    return std::string((std::istreambuf_iterator<char>(file)), {});
  }

 private:
  bool is_file_ = false;
  std::streamoff begin_ = 0;
};

using Ending = LaunchOutcome::Ending;
using Wish = LaunchOptions::Wish;

// Waits for the command's end, or ends it. Fills in everything but the output.
void Attend(Child& child, const LaunchOptions& options,
            LaunchOutcome* outcome) {
  const auto start = Clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto end = [&](Ending ending, int signal) {
    outcome->ending = ending;
    outcome->seconds = seconds();
    outcome->leftovers = End(child, signal, options);
  };
  auto next_look = start;
  double soon = 0;  // when the command has had its time to end by itself
  while (!child.WaitFor(milliseconds(40))) {
    const int interrupt =
        options.interrupt ? options.interrupt->signal.load() : 0;
    if (interrupt != 0) {
      outcome->signal = interrupt;
      return end(Ending::kInterrupted, interrupt);
    }
    if (options.timeout_seconds > 0 && seconds() > options.timeout_seconds) {
      return end(Ending::kTimedOut, SIGTERM);
    }
    if (soon > 0 && seconds() > soon) return end(Ending::kStopped, SIGTERM);
    if (!options.look || Clock::now() < next_look) continue;
    const Wish wish = options.look();
    if (wish == Wish::kEnd) return end(Ending::kFinished, SIGTERM);
    if (wish == Wish::kEndSoon && soon == 0) {
      soon = seconds() + options.grace_seconds;
    }
    next_look = Clock::now() + milliseconds(200);
  }
  outcome->seconds = seconds();

  // Ctrl-C in a shared terminal may end the command before we look.
  const int interrupt =
      options.interrupt ? options.interrupt->signal.load() : 0;
  const int status = child.Poll().value_or(0);
  if (interrupt != 0) {
    outcome->ending = Ending::kInterrupted;
    outcome->signal = interrupt;
  } else if (WIFSIGNALED(status)) {
    outcome->ending = Ending::kSignalled;
    outcome->signal = WTERMSIG(status);
  } else {
    outcome->exit_code = WEXITSTATUS(status);
  }
  // A launcher that was killed could not take its ranks along; a shell says so
  // by its exit code.
  const bool killed =
      outcome->ending != Ending::kExited || outcome->exit_code == 128 + SIGKILL;
  if (options.end_leftovers || killed) {
    outcome->leftovers = EndRunProcesses(options.run_id, options.grace_seconds);
  } else {
    outcome->survivors = FindSurvivors(options.run_id);
  }
}

}  // namespace

Result<LaunchOutcome> Launch(const LaunchOptions& options) {
  TTRACE_CHECK(!options.argv.empty(), "a launch without a command");
  const Supervisor supervisor(options.run_id, options.grace_seconds);
  std::unique_ptr<OutputLog> log;
  if (!options.log_file.empty()) {
    TTRACE_ASSIGN_OR_RETURN(log, OutputLog::Open(options.log_file));
  }
  const OwnErrorFile error_file;
  TTRACE_ASSIGN_OR_RETURN(Child child,
                          Start(options, log ? log->write_end() : -1));
  if (log) log->Start();
  LaunchOutcome outcome;
  Attend(child, options, &outcome);
  if (log) {
    log->Stop();
    outcome.output_tail = log->tail();
    outcome.log_problem = log->problem();
  } else {
    outcome.output_tail = error_file.Tail();
  }
  return outcome;
}

int ShellExitCode(const LaunchOutcome& outcome) {
  switch (outcome.ending) {
    case LaunchOutcome::Ending::kExited:
      return outcome.exit_code;
    case LaunchOutcome::Ending::kFinished:
    case LaunchOutcome::Ending::kStopped:
      return 0;
    case LaunchOutcome::Ending::kTimedOut:
      return 124;
    case LaunchOutcome::Ending::kSignalled:
    case LaunchOutcome::Ending::kInterrupted:
      break;
  }
  return 128 + outcome.signal;
}

std::string Describe(const LaunchOutcome& outcome) {
  const char* abbreviation = sigabbrev_np(outcome.signal);
  const std::string signal = abbreviation
                                 ? "SIG" + std::string(abbreviation)
                                 : "signal " + std::to_string(outcome.signal);
  switch (outcome.ending) {
    case LaunchOutcome::Ending::kFinished:
      return "was ended after its capture was complete";
    case LaunchOutcome::Ending::kStopped:
      return "was ended because its capture had stopped";
    case LaunchOutcome::Ending::kTimedOut:
      return "was ended after " + FormatSeconds(outcome.seconds) +
             ", the time it was given";
    case LaunchOutcome::Ending::kInterrupted:
      return "was interrupted by " + signal;
    case LaunchOutcome::Ending::kSignalled:
      return "was killed by " + signal +
             (outcome.signal == SIGKILL
                  ? " (the kernel does this when memory runs out)"
                  : "");
    case LaunchOutcome::Ending::kExited:
      break;
  }
  // A shell that ran the command reports a signal, or that there is no such
  // command, by these numbers.
  switch (outcome.exit_code) {
    case 126:
      return "exited with code 126: the command is not executable";
    case 127:
      return "exited with code 127: command not found";
    case 128 + SIGKILL:
      return "exited with code 137: killed by SIGKILL (the kernel does this "
             "when memory runs out)";
    default:
      return "exited with code " + std::to_string(outcome.exit_code);
  }
}

std::vector<std::string> LastLines(const std::string& text, int lines) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    result.push_back(Printable(line));
  }
  const auto keep = static_cast<size_t>(lines);
  if (result.size() > keep) {
    result.erase(result.begin(), result.end() - lines);
  }
  return result;
}

}  // namespace ttrace
