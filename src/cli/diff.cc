// `ttrace diff`: two commands in, a verdict out.

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/interrupt.h"
#include "src/cli/plan.h"
#include "src/cli/recording.h"
#include "src/cli/terminal.h"
#include "src/cli/verdict_output.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/leg_names.h"
#include "src/experiment/selection.h"
#include "src/run/free_space.h"
#include "src/run/output_folder.h"
#include "src/run/record_command.h"
#include "src/trace/reader.h"

namespace ttrace {
namespace {

constexpr const char* kDiffFooter = R"(
DIR gets reference/, candidate/, the commands' output in reference.log and
candidate.log, result.json and report.txt. --timeout holds for each launch.
A FILE of - is the standard output, after the report.
The candidate's own first step is run first, alone: what cannot be judged ends
the diff there, before the reference is run (first_step/ is kept then). Not
with --reference-trace, whose candidate is the first launch anyway.
Exit codes: 0 within bounds, 1 diverged, 2 could not decide.

Examples:
  ttrace diff -o report --reference "python train.py" --candidate "python train.py --tp 2"
  ttrace diff -o again --timeout 30m --reference-trace report/reference --candidate "python train.py --tp 2" --junit again/junit.xml --markdown "$GITHUB_STEP_SUMMARY")";

struct DiffArguments {
  std::string folder;
  std::string reference_command;
  std::string reference_trace;
  std::string candidate_command;
  std::string iterations = "0:2";
  std::string reference_legs{kReferenceLegs};
  std::string candidate_legs{kCandidateLegs};
  std::string graft = "weights,data";
  std::string keep = "traces";
  std::string select;
  int64_t seed = 0;
  bool keep_values = false;
  bool run_to_end = false;
  bool no_first_step = false;
  bool force = false;
  bool verbose = false;
  WatchOptions watch;
  ExportOptions exports;
};

// What one side came to.
enum class SideEnd { kGood, kFailed, kRefused, kUnusable, kInterrupted };

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

std::string Plural(int count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// Whatever else is found, no verdict will stand: reruns would be for nothing.
void ComplainOfUnsupported(const std::string& who,
                           const CaptureSummary& capture) {
  for (const std::string& line : capture.unsupported) {
    Complain(who + ": " + line);
  }
}

// Says how the launch ended. What is wrong goes to stderr.
SideEnd Report(const std::string& side, const RecordOptions& run,
               const RecordOutcome& outcome) {
  using Ending = LaunchOutcome::Ending;
  const LaunchOutcome& launch = outcome.launch;
  const CaptureSummary& capture = outcome.capture;
  if (launch.ending == Ending::kInterrupted) return SideEnd::kInterrupted;
  ReportSurvivors(side + ": ", launch);
  const bool finished = capture.iterations == run.iterations.count();
  if (ShellExitCode(launch) != 0 && !finished) {
    const std::string words = ReplacedWords(capture, "--graft");
    if (!words.empty()) Complain(side + ": " + words);
  }
  if (!capture.problem.empty() || launch.ending == Ending::kTimedOut) {
    std::string text = side + ": the command " + DescribeEnd(outcome);
    if (!capture.problem.empty()) {
      text += "\n  nothing to compare: " + capture.problem;
    }
    Complain(text + FullDiskWords(run.folder));
    PrintLogTail(run.log_file, launch);
    return SideEnd::kUnusable;
  }
  if (ShellExitCode(launch) != 0) {
    Complain(side + ": the command " + DescribeEnd(outcome));
  }
  for (const std::string& warning : capture.warnings) {
    Complain(side + ": " + warning + FullDiskWords(run.folder));
  }
  const std::string time = FormatSeconds(launch.seconds);
  if (launch.ending == Ending::kFinished && finished) {
    std::printf(
        "%s: all %s captured after %s; command ended (use --run-to-end "
        "to let it finish)\n",
        side.c_str(), Plural(capture.iterations, "iteration").c_str(),
        time.c_str());
  } else {
    std::printf("%s: %s captured; the command %s after %s\n", side.c_str(),
                Plural(capture.iterations, "iteration").c_str(),
                Describe(launch).c_str(), time.c_str());
  }
  std::fflush(stdout);
  if (ShellExitCode(launch) == 0) return SideEnd::kGood;
  PrintLogTail(run.log_file, launch);
  // A command that fails after all was captured failed at something else.
  return capture.warnings.empty() ? SideEnd::kGood : SideEnd::kFailed;
}

// Runs one side's command and, where needed, its legs.
SideEnd RunSide(const std::string& side, RecordOptions run,
                const InterruptGuard& guard) {
  // The two commands differ somewhere near their ends, and both are known.
  constexpr size_t kLongestCommand = 160;
  std::printf(
      "%s: %s\n", side.c_str(),
      ShortenMiddle(Printable(run.argv.back()), kLongestCommand).c_str());
  std::fflush(stdout);
  const auto folder = PrepareFolder(run.folder, FolderKind::kTrace, false);
  if (!folder.ok()) {
    Complain(folder.error());
    return SideEnd::kUnusable;
  }
  ProgressLine progress;
  const auto start = std::chrono::steady_clock::now();
  bool began = false;
  run.progress = [&](int closed, int world_size) {
    if (world_size > 0 && !began) {
      began = true;
      progress.Phase(side + ": capture began after " +
                     FormatSeconds(SecondsSince(start)));
    }
    progress.Show(world_size == 0 ? side + ": waiting for the first rank"
                                  : side + ": capture complete in " +
                                        std::to_string(closed) + " of " +
                                        Plural(world_size, "rank"));
  };
  run.cost = [&](const CaptureCost& cost) {
    progress.Clear();
    std::printf("%s: %s\n", side.c_str(), CostWords(cost, run.folder).c_str());
    std::fflush(stdout);
    const std::string too_large = TooLargeWords(cost, run.folder);
    if (!too_large.empty()) Complain(side + ": " + too_large);
  };
  const Result<RecordOutcome> outcome = RecordCommand(run);
  progress.Clear();
  if (!outcome.ok()) {
    Complain(outcome.error().WithContext(side));
    return SideEnd::kUnusable;
  }
  const SideEnd end = Report(side, run, *outcome);
  if (end != SideEnd::kGood && end != SideEnd::kFailed) return end;
  if (!outcome->capture.unsupported.empty()) {
    ComplainOfUnsupported(side, outcome->capture);
    return SideEnd::kRefused;
  }
  RunLegLaunches(run, outcome->capture, *guard.flag());
  return guard.interrupted() ? SideEnd::kInterrupted : end;
}

// Runs the candidate's own first step and looks at what it left.
SideEnd RunFirstStep(const RecordOptions& run) {
  const std::string who = "first step";
  std::printf("%s: the candidate's, with weights and data of its own\n",
              who.c_str());
  std::fflush(stdout);
  const auto folder = PrepareFolder(run.folder, FolderKind::kTrace, false);
  if (!folder.ok()) {
    Complain(folder.error());
    return SideEnd::kUnusable;
  }
  const Result<RecordOutcome> outcome = RecordCommand(run);
  if (!outcome.ok()) {
    Complain(outcome.error().WithContext(who));
    return SideEnd::kUnusable;
  }
  const LaunchOutcome& launch = outcome->launch;
  const CaptureSummary& capture = outcome->capture;
  if (launch.ending == LaunchOutcome::Ending::kInterrupted) {
    return SideEnd::kInterrupted;
  }
  ReportSurvivors(who + ": ", launch);
  const bool refused = !capture.unsupported.empty();
  if (capture.problem.empty() && !refused) {
    std::printf("%s: nothing that cannot be judged, after %s\n", who.c_str(),
                FormatSeconds(launch.seconds).c_str());
    std::fflush(stdout);
    std::error_code ignored;
    std::filesystem::remove(run.log_file, ignored);
    const Status removed = RemoveTrace(run.folder);
    if (!removed.ok()) Complain(removed.error());
    return SideEnd::kGood;
  }
  if (refused) {
    ComplainOfUnsupported(who, capture);
  } else {
    Complain(who + ": the command " + DescribeEnd(*outcome) +
             "\n  nothing to compare: " + capture.problem +
             FullDiskWords(run.folder));
    PrintLogTail(run.log_file, launch);
  }
  Complain(
      "the reference was not run (with --no-first-step this is found after "
      "it)");
  return SideEnd::kUnusable;
}

// What both sides' launches have in common.
Result<RecordOptions> CommonOptions(const DiffArguments& options) {
  RecordOptions run;
  TTRACE_ASSIGN_OR_RETURN(run.iterations, ParseIterations(options.iterations));
  TTRACE_RETURN_IF_ERROR(CheckGraft(options.graft));
  TTRACE_RETURN_IF_ERROR(CheckSelection(options.select));
  TTRACE_RETURN_IF_ERROR(SetWatch(options.watch, "", &run));
  TTRACE_RETURN_IF_ERROR(UseOwnEnvironment(&run));
  run.select = options.select;
  run.seed = options.seed;
  run.graft_what = options.graft;
  run.keep_values = options.keep_values;
  run.dropout_off = true;  // masks of two topologies cannot agree
  run.end_when_captured = !options.run_to_end;
  run.end_leftovers = true;
  return run;
}

RecordOptions ForSide(const RecordOptions& common, const DiffArguments& options,
                      const std::string& side, const std::string& command,
                      std::vector<Leg> legs) {
  RecordOptions run = common;
  run.argv = {"/bin/sh", "-c", command};
  run.folder = (std::filesystem::path(options.folder) / side).string();
  run.log_file = run.folder + ".log";
  run.legs = std::move(legs);
  run.notice = [side](const std::string& text) {
    Complain(side + ": " + text);
  };
  return run;
}

void PrintFirstLine(const DiffArguments& options) {
  std::string what = "ttrace: diff ";
  if (options.graft != "none") {
    what += "tries to run the candidate with the reference's " +
            std::string(options.graft == "weights,data" ? "weights and data"
                                                        : options.graft) +
            " (what it cannot replace is in the report)";
    if (!options.run_to_end) what += ", and ";
  }
  if (!options.run_to_end) {
    what += "ends each command once it is captured";
  }
  if (options.graft != "none" || !options.run_to_end) {
    std::printf("%s\n", what.c_str());
    std::fflush(stdout);
  }
}

// A saved reference costs nothing, and the candidate is the first launch. A
// command that has to run to its end is not started for a look.
bool LooksFirst(const DiffArguments& options) {
  return options.reference_trace.empty() && !options.run_to_end &&
         !options.no_first_step;
}

// How the next try does without running the reference again, where NEXT does
// not say it.
void PrintNextTry(const DiffArguments& options, const std::string& reference) {
  if (!options.reference_trace.empty() || options.keep != "traces") return;
  std::printf(
      "the reference is kept; another candidate: ttrace diff -o NEW "
      "--reference-trace %s --candidate CMD\n",
      Printable(reference).c_str());
  std::fflush(stdout);
}

void PrintPlan(const DiffArguments& options, const IterationRange& iterations,
               const std::vector<Leg>& reference_legs,
               const std::vector<Leg>& candidate_legs) {
  if (LooksFirst(options)) {
    std::printf(
        "plan: first the candidate's own first step alone, one launch, to see "
        "whether\n"
        "plan: it can be judged (--no-first-step: without)\n");
  }
  if (options.reference_trace.empty()) {
    std::printf("plan: reference: %s\n",
                StepsWords(iterations, reference_legs).c_str());
  }
  std::printf(
      "plan: candidate: %s\n"
      "plan: bytes and memory are said before the first rerun; a loop that "
      "cannot be rerun\n"
      "plan: in place (plain torch) is launched once more for each leg\n",
      StepsWords(iterations, candidate_legs).c_str());
  std::fflush(stdout);
}

int DiscardTraces(const DiffArguments& options, int exit_code) {
  if (options.keep == "traces") return exit_code;
  for (const char* side : {"reference", "candidate"}) {
    const auto trace = std::filesystem::path(options.folder) / side;
    if (!std::filesystem::exists(trace)) continue;
    const Status removed = RemoveTrace(trace.string());
    if (!removed.ok()) Complain(removed.error());
  }
  return exit_code;
}

int Diff(const DiffArguments& options) {
  if (options.reference_command.empty() == options.reference_trace.empty()) {
    return Complain("give either --reference COMMAND or --reference-trace DIR");
  }
  const auto reference_legs = ExpandLegs(options.reference_legs);
  if (!reference_legs.ok()) return Complain(reference_legs.error());
  auto candidate_legs = ExpandLegs(options.candidate_legs);
  if (!candidate_legs.ok()) return Complain(candidate_legs.error());
  if (options.graft != "weights,data") {
    // Modules would be given the candidate's own values: no test of anything.
    std::erase_if(*candidate_legs,
                  [](const Leg& leg) { return leg.is_isolated(); });
  }
  const Result<RecordOptions> common = CommonOptions(options);
  if (!common.ok()) return Complain(common.error());
  const Status possible = CheckExports(options.exports, options.folder);
  if (!possible.ok()) return Complain(possible.error());
  if (!options.reference_trace.empty()) {
    const auto saved = Trace::Open(options.reference_trace);
    if (!saved.ok()) {
      const std::string inside = options.reference_trace + "/reference";
      const std::string hint = Trace::Open(inside).ok()
                                   ? ": the trace of this diff is " + inside
                                   : "";
      return Complain(saved.error().WithContext("--reference-trace" + hint));
    }
  }
  const auto folder =
      PrepareFolder(options.folder, FolderKind::kReport, options.force);
  if (!folder.ok()) return Complain(folder.error());
  WarnOfOrphans();
  PrintFirstLine(options);
  PrintPlan(options, common->iterations, *reference_legs, *candidate_legs);

  CheckOptions check;
  check.reference = options.reference_trace;
  SideEnd end = SideEnd::kGood;
  {
    const InterruptGuard guard;
    if (LooksFirst(options)) {
      RecordOptions run = FirstStepOf(
          ForSide(*common, options, "candidate", options.candidate_command, {}),
          (std::filesystem::path(options.folder) / "first_step").string());
      run.interrupt = guard.flag();
      run.notice = [](const std::string& text) {
        Complain("first step: " + text);
      };
      end = RunFirstStep(run);
    }
    if (end == SideEnd::kGood && check.reference.empty()) {
      RecordOptions run = ForSide(*common, options, "reference",
                                  options.reference_command, *reference_legs);
      run.as_reference = true;
      run.interrupt = guard.flag();
      check.reference = run.folder;
      end = RunSide("reference", run, guard);
      if (end == SideEnd::kFailed) {
        return Complain("the reference has to be a run that works");
      }
    }
    if (end == SideEnd::kGood) {
      RecordOptions run = ForSide(*common, options, "candidate",
                                  options.candidate_command, *candidate_legs);
      run.interrupt = guard.flag();
      if (options.graft != "none") run.graft = check.reference;
      check.candidate = run.folder;
      end = RunSide("candidate", run, guard);
    }
    if (end == SideEnd::kInterrupted) {
      Complain("interrupted; all processes of the run are ended");
      return guard.exit_code();
    }
  }
  const bool broke = end == SideEnd::kUnusable || end == SideEnd::kFailed;
  if (broke && LooksFirst(options) && options.graft != "none" &&
      !check.candidate.empty()) {
    Complain("candidate: with weights and data of its own, its first step ran");
  }
  if (end == SideEnd::kUnusable || check.candidate.empty()) {
    // Unless it is the reference that ended badly.
    if (!check.candidate.empty()) PrintNextTry(options, check.reference);
    return kCouldNotDecide;
  }

  check.reference_legs = FindLegFolders(check.reference);
  check.candidate_legs = FindLegFolders(check.candidate);
  std::printf("\n");
  const int verdict =
      CheckAndReport(check, {options.folder, options.verbose, options.exports});
  // A run that broke down is not equal to one that did not.
  const bool passed = verdict == 0 && end == SideEnd::kGood;
  if (verdict == 0) PrintNextTry(options, check.reference);
  return DiscardTraces(options,
                       verdict == 0 && !passed ? kCouldNotDecide : verdict);
}

}  // namespace

void AddDiff(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "diff", "Run two commands and say whether, where and why they differ.");
  const auto options = std::make_shared<DiffArguments>();
  command->add_option("-o,--output", options->folder, "folder for all results")
      ->required();
  command->add_option("--reference", options->reference_command,
                      "command of the trusted run, as one argument");
  command->add_option("--reference-trace", options->reference_trace,
                      "saved trace to use instead (record --as-reference)");
  command
      ->add_option("--candidate", options->candidate_command,
                   "command of the run under test, as one argument")
      ->required();
  command
      ->add_option("--iterations", options->iterations,
                   "optimizer steps to compare, FIRST:END")
      ->capture_default_str();
  command
      ->add_option("--graft", options->graft,
                   "what the candidate takes from the reference: "
                   "weights,data or weights or data or none")
      ->capture_default_str();
  command
      ->add_option("--legs", options->candidate_legs, "reruns of the candidate")
      ->capture_default_str();
  command
      ->add_option("--reference-legs", options->reference_legs,
                   "reruns of the reference")
      ->capture_default_str();
  command->add_option("--select", options->select,
                      "compare only these: KEY=PATTERN;... with fqn, role, "
                      "micro_batch, rank (what other ranks hold is then "
                      "missing from sums and shards)");
  command->add_flag("--keep-values", options->keep_values,
                    "write all values of all reruns, as record does with it");
  command->add_option("--seed", options->seed, "of the noise")
      ->capture_default_str();
  command
      ->add_option("--keep", options->keep,
                   "traces: everything; report: delete the traces at the end")
      ->capture_default_str()
      ->check(CLI::IsMember({"traces", "report"}));
  AddExportOptions(command, &options->exports);
  AddWatchOptions(command, &options->watch);
  command->add_flag("--run-to-end", options->run_to_end,
                    "let the commands finish");
  command->add_flag("--no-first-step", options->no_first_step,
                    "do not run the candidate's own first step before the "
                    "reference to see whether it can be judged");
  command->add_flag("--force", options->force,
                    "replace what ttrace wrote to the folder before");
  command->add_flag("-v,--verbose", options->verbose,
                    "list every tensor that is out of bounds");
  command->footer(kDiffFooter);
  command->callback(
      [action, options] { *action = [options] { return Diff(*options); }; });
}

}  // namespace ttrace
