#include "src/cli/run_side.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/live_line.h"
#include "src/cli/plan.h"
#include "src/cli/progress.h"
#include "src/cli/recording.h"
#include "src/run/free_space.h"
#include "src/run/output_folder.h"

namespace ttrace {
namespace {

// As it was typed: of a shell's command, that.
std::string CommandWords(const std::vector<std::string>& argv) {
  if (argv.size() == 3 && argv[1] == "-c") return argv[2];
  std::string words;
  for (const std::string& word : argv) {
    words += (words.empty() ? "" : " ") + word;
  }
  return words;
}

SideOutcome Unusable(const Error& error) {
  Complain(error);
  return {SideEnd::kUnusable, error.message()};
}

// Whatever else is found, no verdict will stand: reruns would be for nothing.
SideOutcome Refused(SideEnd end, const std::string& who,
                    const CaptureSummary& capture) {
  for (const std::string& line : capture.unsupported) {
    Complain(who + ": " + line);
  }
  return {end, who + ": " + capture.unsupported.front()};
}

// Of a launch that left nothing to compare.
SideOutcome NothingToCompare(const std::string& who, const RecordOptions& run,
                             const RecordOutcome& outcome) {
  const std::string ended = who + ": the command " + DescribeEnd(outcome);
  const std::string& problem = outcome.capture.problem;
  Complain(ended +
           (problem.empty() ? "" : "\n  nothing to compare: " + problem) +
           FullDiskWords(run.folder));
  PrintLogTail(run.log_file, outcome.launch);
  // Of a command that failed that is the reason, and one line is enough.
  if (problem.empty() || ShellExitCode(outcome.launch) != 0) {
    return {SideEnd::kUnusable, ended};
  }
  return {SideEnd::kUnusable, ended + "; nothing to compare: " +
                                  problem.substr(0, problem.find('\n'))};
}

// Says how the launch ended. What is wrong goes to stderr.
SideOutcome Report(const std::string& side, const RecordOptions& run,
                   const RecordOutcome& outcome) {
  using Ending = LaunchOutcome::Ending;
  const LaunchOutcome& launch = outcome.launch;
  const CaptureSummary& capture = outcome.capture;
  if (launch.ending == Ending::kInterrupted) return {SideEnd::kInterrupted, ""};
  ReportSurvivors(side + ": ", launch);
  const bool finished = capture.iterations == run.iterations.count();
  if (ShellExitCode(launch) != 0 && !finished) {
    const std::string words = ReplacedWords(capture, "--graft");
    if (!words.empty()) Complain(side + ": " + words);
  }
  if (!capture.problem.empty() || launch.ending == Ending::kTimedOut) {
    return NothingToCompare(side, run, outcome);
  }
  const std::string ended = side + ": the command " + DescribeEnd(outcome);
  if (ShellExitCode(launch) != 0) Complain(ended);
  for (const std::string& warning : capture.warnings) {
    Complain(side + ": " + warning + FullDiskWords(run.folder));
  }
  const std::string time = FormatSeconds(launch.seconds);
  if (launch.ending == Ending::kFinished && finished) {
    Say(side + ": all " + Counted(capture.iterations, "iteration") +
        " captured after " + time +
        "; command ended (use --run-to-end to let it finish)");
  } else {
    Say(side + ": " + Counted(capture.iterations, "iteration") +
        " captured; the command " + Describe(launch) + " after " + time);
  }
  if (ShellExitCode(launch) == 0) return {};
  PrintLogTail(run.log_file, launch);
  // A command that fails after all was captured failed at something else.
  if (capture.warnings.empty()) return {};
  return {SideEnd::kFailed, ended};
}

}  // namespace

SideOutcome RunSide(const std::string& side, RecordOptions run, bool replace,
                    const InterruptGuard& guard) {
  // The two commands differ somewhere near their ends, and both are known.
  constexpr size_t kLongestCommand = 160;
  Say(side + ": " +
      ShortenMiddle(Printable(CommandWords(run.argv)), kLongestCommand));
  const auto folder = PrepareFolder(run.folder, FolderKind::kTrace, replace);
  if (!folder.ok()) return Unusable(folder.error());
  run.cost = [&](const CaptureCost& cost) {
    Say(side + ": " + CostWords(cost, run.folder));
    const std::string too_large = TooLargeWords(cost, run.folder);
    if (!too_large.empty()) Complain(side + ": " + too_large);
  };
  const Result<RecordOutcome> outcome =
      RecordWithProgress(run, {.side = side, .phase = "record"});
  if (!outcome.ok()) return Unusable(outcome.error().WithContext(side));
  SideOutcome side_ended = Report(side, run, *outcome);
  if (side_ended.end != SideEnd::kGood && side_ended.end != SideEnd::kFailed) {
    return side_ended;
  }
  if (!outcome->capture.unsupported.empty()) {
    return Refused(SideEnd::kRefused, side, outcome->capture);
  }
  RunLegLaunches(run, outcome->capture, side, *guard.flag());
  if (guard.interrupted()) return {SideEnd::kInterrupted, ""};
  return side_ended;
}

SideOutcome RunFirstStep(const RecordOptions& run) {
  const std::string who = "first step";
  Say(who + ": the candidate's, with weights and data of its own");
  const auto folder = PrepareFolder(run.folder, FolderKind::kTrace, false);
  if (!folder.ok()) return Unusable(folder.error());
  const Result<RecordOutcome> outcome =
      RecordWithProgress(run, {.side = "candidate", .phase = "first_step"});
  if (!outcome.ok()) return Unusable(outcome.error().WithContext(who));
  const LaunchOutcome& launch = outcome->launch;
  const CaptureSummary& capture = outcome->capture;
  if (launch.ending == LaunchOutcome::Ending::kInterrupted) {
    return {SideEnd::kInterrupted, ""};
  }
  ReportSurvivors(who + ": ", launch);
  if (capture.problem.empty() && capture.unsupported.empty()) {
    Say(who + ": nothing that cannot be judged, after " +
        FormatSeconds(launch.seconds));
    std::error_code ignored;
    std::filesystem::remove(run.log_file, ignored);
    const Status removed = RemoveTrace(run.folder);
    if (!removed.ok()) Complain(removed.error());
    return {};
  }
  SideOutcome out = capture.unsupported.empty()
                        ? NothingToCompare(who, run, *outcome)
                        : Refused(SideEnd::kUnusable, who, capture);
  Complain(
      "the reference was not run (with --no-first-step this is found after "
      "it)");
  return out;
}

}  // namespace ttrace
