#include "src/cli/recording.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/live_line.h"
#include "src/experiment/leg_names.h"
#include "src/run/duration.h"
#include "src/run/free_space.h"
#include "src/run/last_error.h"
#include "src/run/orphan_ranks.h"
#include "src/run/output_folder.h"

namespace ttrace {

Status UseOwnEnvironment(RecordOptions* options) {
  const char* hook = std::getenv("TTRACE_HOOK_DIR");
  if (hook == nullptr || !std::filesystem::exists(std::filesystem::path(hook) /
                                                  "sitecustomize.py")) {
    return Error(ErrorCode::kNotFound,
                 "cannot find capture's import hook; start ttrace by its "
                 "console script (pip install), or set TTRACE_HOOK_DIR to the "
                 "folder ttrace/hook of the Python package");
  }
  options->hook_folder = std::filesystem::absolute(hook).string();
  options->environment.clear();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    options->environment.emplace_back(*entry);
  }
  return Done{};
}

void SetVariable(const std::string& name, const std::string& value,
                 std::vector<std::string>* environment) {
  std::erase_if(*environment, [&](const std::string& entry) {
    return entry.starts_with(name + "=");
  });
  environment->push_back(name + "=" + value);
}

Status CheckGraft(const std::string& what) {
  for (const char* known : {"weights,data", "weights", "data", "none"}) {
    if (what == known) return Done{};
  }
  return Error(ErrorCode::kInvalidArgument,
               "cannot graft '" + Printable(what) +
                   "'; there are weights,data and weights and data and none");
}

namespace {

// `left`: how long this launch and those after it take, in seconds, as far as
// it is known; of one launch of many its own time tells nothing.
Result<RecordOutcome> RecordAndShow(RecordOptions run, const ProgressTask& task,
                                    std::optional<double> left) {
  Progress progress(task);
  bool began = false;
  run.progress = [&](CaptureProgress so_far) {
    if (so_far.world_size > 0 && !began) {
      began = true;
      // On a terminal the live line says enough.
      if (task.launches == 0 && !task.shares_terminal &&
          isatty(STDERR_FILENO) == 0) {
        SayAside(TaskWords(task) + ": capture began after " +
                 FormatSeconds(so_far.seconds));
      }
    }
    if (task.launches > 0) {
      so_far.seconds_left.reset();
      if (left) so_far.seconds_left = std::max(*left - so_far.seconds, 0.0);
    }
    progress.Show(so_far);
  };
  return RecordCommand(run);
}

}  // namespace

Result<RecordOutcome> RecordWithProgress(RecordOptions run,
                                         const ProgressTask& task) {
  return RecordAndShow(std::move(run), task, std::nullopt);
}

void RunLegLaunches(const RecordOptions& real, const CaptureSummary& summary,
                    const std::string& side, const InterruptFlag& interrupt) {
  std::vector<Leg> legs;
  for (const Leg& leg : real.legs) {
    const auto& skipped = summary.skipped_legs;
    if (std::find(skipped.begin(), skipped.end(), leg) == skipped.end()) {
      legs.push_back(leg);
    }
  }
  if (!summary.one_launch_per_leg || legs.empty()) return;
  const std::string& why = summary.why_launches;
  SayAside("iterations are not run again in place" +
           (why.empty() ? "" : " (" + Printable(why) + ")") +
           ", so the command is launched " + std::to_string(legs.size()) +
           (legs.size() == 1 ? " more time, for its leg."
                             : " more times, once for each leg."));
  double seconds = 0;  // of all launches so far
  for (size_t i = 0; i < legs.size() && interrupt.signal.load() == 0; ++i) {
    RecordOptions run = real;
    run.leg = legs[i];
    run.legs.clear();
    run.as_reference = false;
    if (run.graft.empty()) run.graft = real.folder;
    run.folder = LegFolder(real.folder, run.leg);
    run.log_file = run.folder + ".log";
    run.end_when_captured = true;
    run.end_leftovers = true;
    if (isatty(STDERR_FILENO) == 0) {
      SayAside("leg " + run.leg.name() + " (" + std::to_string(i + 1) + " of " +
               std::to_string(legs.size()) + ")");
    }
    const auto folder = PrepareFolder(run.folder, FolderKind::kTrace, false);
    if (!folder.ok()) {
      Complain(folder.error());
      return;
    }
    ProgressTask task = {.side = side, .phase = "leg"};
    task.launch = static_cast<int>(i) + 1;
    task.launches = static_cast<int>(legs.size());
    std::optional<double> left;
    if (i > 0) {
      left = seconds / static_cast<double>(i) *
             static_cast<double>(legs.size() - i);
    }
    const Result<RecordOutcome> outcome = RecordAndShow(run, task, left);
    if (outcome.ok()) seconds += outcome->launch.seconds;
    if (outcome.ok() && outcome->capture.problem.empty()) continue;
    if (interrupt.signal.load() == 0) {
      Complain("leg " + run.leg.name() + ": " +
               (outcome.ok()
                    ? "the command " + DescribeEnd(*outcome) + "\n  " +
                          outcome->capture.problem + FullDiskWords(run.folder)
                    : outcome.error().message()));
      if (outcome.ok()) PrintLogTail(run.log_file, outcome->launch);
    }
    // A leg without records would look like a leg in which all is missing.
    const Status removed = RemoveTrace(run.folder);
    if (!removed.ok()) Complain(removed.error());
  }
}

void AddWatchOptions(CLI::App* command, WatchOptions* options) {
  command
      ->add_option("--timeout", options->timeout,
                   "end a command that takes longer (exit code 2): 90s, 10m, "
                   "2h; 0: never")
      ->capture_default_str()
      ->type_name("DURATION");
  command
      ->add_option("--stall-notice", options->stall_notice,
                   "say where each rank is once none has written for so long; "
                   "0: never")
      ->capture_default_str()
      ->type_name("DURATION");
}

Status SetWatch(const WatchOptions& options, const std::string& who,
                RecordOptions* run) {
  const Result<double> timeout = ParseDuration(options.timeout);
  if (!timeout.ok()) return timeout.error().WithContext("--timeout");
  const Result<double> stall = ParseDuration(options.stall_notice);
  if (!stall.ok()) return stall.error().WithContext("--stall-notice");
  run->timeout_seconds = *timeout;
  run->stall_seconds = *stall;
  run->notice = [who](const std::string& text) { Complain(who + text); };
  return Done{};
}

void WarnOfOrphans() {
  std::map<std::string, std::vector<RunProcess>> by_trace;
  for (RunProcess& process : FindOrphans()) {
    by_trace[process.trace].push_back(std::move(process));
  }
  for (const auto& [trace, processes] : by_trace) {
    Complain(
        "the ttrace of an earlier run into '" + Printable(trace) +
        "' is gone, but " + PidWords(processes) +
        (processes.size() == 1 ? " of it still runs" : " of it still run"));
  }
}

void ReportSurvivors(const std::string& who, const LaunchOutcome& launch) {
  if (launch.ending == LaunchOutcome::Ending::kSignalled ||
      launch.ending == LaunchOutcome::Ending::kExited) {
    if (launch.leftovers > 0) {
      Complain(who + std::to_string(launch.leftovers) +
               (launch.leftovers == 1 ? " process" : " processes") +
               " of the run outlived the command and " +
               (launch.leftovers == 1 ? "was" : "were") + " ended");
    }
  }
  if (!launch.survivors.empty()) {
    Complain(who + PidWords(launch.survivors) +
             " of the run outlived the command and still " +
             (launch.survivors.size() == 1 ? "runs" : "run"));
  }
}

void PrintLogTail(const std::string& log_file, const LaunchOutcome& launch) {
  ClearLiveLine();
  constexpr int kLines = 20;
  // A launcher has much to say after the rank that failed.
  std::vector<std::string> lines = LinesOfLastError(launch.output_tail, kLines);
  const bool of_error = !lines.empty();
  if (!of_error) lines = LastLines(launch.output_tail, kLines);
  if (lines.empty()) {
    std::fprintf(stderr, "  (the command printed nothing)\n");
    return;
  }
  if (launch.log_problem.empty()) {
    std::fprintf(stderr, "  %s %s:\n",
                 of_error ? "where it failed, from" : "the last lines of",
                 Printable(log_file).c_str());
  } else {
    std::fprintf(stderr, "  its last lines (%s is incomplete: %s):\n",
                 Printable(log_file).c_str(), launch.log_problem.c_str());
  }
  for (const std::string& line : lines) {
    std::fprintf(stderr, "  | %s\n", line.c_str());
  }
}

}  // namespace ttrace
