// `ttrace record`: run a command with capture, change nothing about it.
//
// Standard output and the exit code belong to the command; what we say goes to
// stderr.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/interrupt.h"
#include "src/cli/live_line.h"
#include "src/cli/progress.h"
#include "src/cli/recording.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/leg_names.h"
#include "src/experiment/selection.h"
#include "src/experiment/side.h"
#include "src/run/free_space.h"
#include "src/run/output_folder.h"
#include "src/run/record_command.h"

namespace ttrace {
namespace {

constexpr const char* kRecordFooter = R"(
The numbers of the run stay what they are, except with --graft or --dropout off.
Exit codes: the command's own; 128 + N if signal N ended it; 2 if nothing was
captured or --timeout ended it.

Examples:
  ttrace record -o reference --as-reference -- python train.py
  ttrace record -o before --bitwise -- python train.py
  ttrace record -o after --bitwise -- python train.py
  ttrace record -o candidate --graft reference --timeout 10m -- python train.py --tp 2
  ttrace record -o piece --select "fqn=*layers.0*;role=output" --iterations 0:1 -- python train.py)";

struct RecordArguments {
  RecordOptions record;
  std::string iterations = "0:2";
  std::string legs;
  std::string dropout;  // empty: as it follows from --graft
  bool legs_given = false;
  bool bitwise = false;  // to be compared bit for bit: digests are enough
  bool bounded = true;   // the reference has noise legs
  bool force = false;
  WatchOptions watch;
  ProgressOptions progress;
};

// Checks what the option parser cannot. Leaves `options` ready to record into a
// folder that is ours while the lock is kept.
// What takes values cannot be had without them.
Status CheckMode(const RecordOptions& record) {
  if (record.mode == "full") return Done{};
  if (record.keep_values) {
    return Error(
        ErrorCode::kInvalidArgument,
        "--keep-values and --mode " + record.mode + " contradict each other");
  }
  const auto isolated =
      std::find_if(record.legs.begin(), record.legs.end(),
                   [](const Leg& leg) { return leg.is_isolated(); });
  if (record.graft.empty() && isolated != record.legs.end()) {
    return Error(ErrorCode::kInvalidArgument,
                 "leg " + isolated->name() +
                     " takes the values of the run itself, which --mode " +
                     record.mode + " does not keep");
  }
  return Done{};
}

// What only a tolerance needs.
Status CheckBitwise(const RecordArguments& options) {
  const RecordOptions& record = options.record;
  const char* other = options.legs_given      ? "--legs"
                      : record.as_reference   ? "--as-reference"
                      : !record.graft.empty() ? "--graft"
                      : record.keep_values    ? "--keep-values"
                      : record.mode != "full" ? "--mode"
                                              : nullptr;
  if (other == nullptr) return Done{};
  return Error(ErrorCode::kInvalidArgument,
               std::string("--bitwise keeps digests of the run as it is, for "
                           "`ttrace check --bitwise`: leave out ") +
                   other);
}

Status CheckHasValues(const Side& reference) {
  for (const auto& [id, pieces] : reference.real()) {
    if (!HasSummaries(pieces)) continue;
    return Error(ErrorCode::kInvalidArgument,
                 "--graft " + Printable(reference.trace().folder()) +
                     ": it holds summaries, not values: check against it a run "
                     "of the same weights and data, recorded without --graft");
  }
  return Done{};
}

Result<FolderLock> Complete(const CommandLine& line, RecordArguments* options) {
  RecordOptions& record = options->record;
  if (line.after_dashes.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "no command to record; put it after --:\n"
                 "  ttrace record -o DIR -- python train.py");
  }
  record.argv = line.after_dashes;
  if (options->bitwise) {
    TTRACE_RETURN_IF_ERROR(CheckBitwise(*options));
    record.mode = "bitwise";
  }
  TTRACE_ASSIGN_OR_RETURN(record.iterations,
                          ParseIterations(options->iterations));
  if (record.graft_what == "none") record.graft.clear();
  if (!options->legs_given) {
    options->legs = record.as_reference
                        ? (record.mode == "full" ? kReferenceLegs
                                                 : kSummarizedReferenceLegs)
                    : !record.graft.empty() ? kCandidateLegs
                                            : "";
  }
  // Masks of two topologies cannot agree.
  record.dropout_off = options->dropout.empty() ? !record.graft.empty()
                                                : options->dropout == "off";
  TTRACE_ASSIGN_OR_RETURN(record.legs, ExpandLegs(options->legs));
  TTRACE_RETURN_IF_ERROR(CheckMode(record));
  TTRACE_RETURN_IF_ERROR(CheckSelection(record.select));
  TTRACE_RETURN_IF_ERROR(CheckGraft(record.graft_what));
  if (!record.graft.empty()) {
    const auto reference =
        Side::Open(record.graft, FindLegFolders(record.graft));
    if (!reference.ok()) return reference.error().WithContext("--graft");
    TTRACE_RETURN_IF_ERROR(CheckHasValues(*reference));
    const std::vector<Leg> legs = reference->Legs();
    options->bounded =
        std::any_of(legs.begin(), legs.end(),
                    [](const Leg& leg) { return leg.is_noise(); });
  }
  TTRACE_RETURN_IF_ERROR(SetWatch(options->watch, "", &record));
  TTRACE_RETURN_IF_ERROR(UseOwnEnvironment(&record));
  return PrepareFolder(record.folder, FolderKind::kTrace, options->force);
}

int RunRecord(const CommandLine& line, RecordArguments* options) {
  UseProgressOptions(options->progress);
  const Result<FolderLock> folder = Complete(line, options);
  if (!folder.ok()) return Complain(folder.error());
  WarnOfOrphans();
  RecordOptions& record = options->record;
  if (!record.graft.empty()) {
    SayAside("this run uses " +
             (record.graft_what == "weights,data" ? "weights and data"
                                                  : record.graft_what) +
             " of " + Printable(record.graft) +
             " where it can: its numbers are not its own.");
  }
  if (record.dropout_off && record.graft.empty()) {
    SayAside(
        "this run is without dropout: if it has any, its numbers are not its "
        "own.");
  }
  if (!options->bounded) {
    Complain(Printable(record.graft) +
             " has no noise legs, so that a check against it has no bounds; "
             "record it with --as-reference.");
  }

  const InterruptGuard guard;
  record.interrupt = guard.flag();
  ProgressTask task = {.side = "record", .phase = "record"};
  task.shares_terminal = true;
  const Result<RecordOutcome> outcome = RecordWithProgress(record, task);
  if (!outcome.ok()) return Complain(outcome.error());
  const LaunchOutcome& launch = outcome->launch;
  const bool timed_out = launch.ending == LaunchOutcome::Ending::kTimedOut;
  const int exit_code = timed_out ? kCouldNotDecide : ShellExitCode(launch);
  const CaptureSummary& capture = outcome->capture;
  ReportSurvivors("", launch);
  if (exit_code != 0 && capture.iterations < record.iterations.count()) {
    if (const auto words = ReplacedWords(capture, "--graft-what");
        !words.empty()) {
      Complain(words);
    }
  }
  if (!capture.problem.empty()) {
    Complain("the command " + DescribeEnd(*outcome) + "\n  nothing captured: " +
             capture.problem + FullDiskWords(record.folder));
    return exit_code != 0 ? exit_code : kCouldNotDecide;
  }
  if (exit_code != 0) Complain("the command " + DescribeEnd(*outcome));
  for (const std::string& warning : capture.warnings) {
    Complain(warning + FullDiskWords(record.folder));
  }
  if (!guard.interrupted() && !timed_out) {
    RunLegLaunches(record, capture, "record", *guard.flag());
  }
  SayAside("captured " + Counted(capture.iterations, "iteration") + " of " +
           Counted(capture.world_size, "rank") + " in " +
           Printable(record.folder));
  return guard.interrupted() ? guard.exit_code() : exit_code;
}

}  // namespace

void AddRecord(CLI::App& app, const CommandLine& line, Action* action) {
  CLI::App* command = app.add_subcommand(
      "record", "Run a command and capture its tensors into a trace.");
  const auto options = std::make_shared<RecordArguments>();
  RecordOptions& record = options->record;
  command->add_option("-o,--output", record.folder, "trace folder to make")
      ->required();
  command->add_flag(
      "--as-reference", record.as_reference,
      "with the legs that a tolerance needs: " + std::string(kReferenceLegs));
  command
      ->add_option("--iterations", options->iterations,
                   "optimizer steps to capture, FIRST:END")
      ->capture_default_str();
  const CLI::Option* legs = command->add_option(
      "--legs", options->legs,
      "reruns of each iteration: replay, noise:N, fp32, fp32.noise:N, "
      "isolated, isolated.noise:N, fp32.isolated, fp32.isolated.noise:N, or "
      "none; with --graft " +
          std::string(kCandidateLegs) + " by default");
  command->add_option("--graft", record.graft,
                      "use this reference's weights and data");
  command
      ->add_option("--graft-what", record.graft_what,
                   "weights,data or weights or data or none")
      ->capture_default_str();
  command->add_option("--select", record.select,
                      "capture only these: KEY=PATTERN;... with fqn, role, "
                      "micro_batch, rank (what other ranks hold is then "
                      "missing from sums and shards)");
  command
      ->add_option("--dropout", options->dropout,
                   "off: run without dropout, as a comparison of topologies "
                   "needs; keep (off with --graft)")
      ->check(CLI::IsMember({"off", "keep"}));
  command
      ->add_option("--mode", record.mode,
                   "sketch: of tensors of more than a thousand elements keep "
                   "what estimates a distance")
      ->check(CLI::IsMember({"full", "sketch"}))
      ->capture_default_str();
  command->add_flag("--bitwise", options->bitwise,
                    "keep of each tensor what tells whether it is equal bit "
                    "for bit, a few bytes, for `ttrace check --bitwise`");
  command->add_flag("--keep-values", record.keep_values,
                    "write all values of all reruns; else noise is measured "
                    "and, with --graft, what is close to the reference is "
                    "compared where it runs, and bytes that a replay repeats "
                    "are written once");
  command->add_flag("--launch-per-leg", record.launch_per_leg,
                    "make every rerun a launch of the command of its own");
  command->add_option("--seed", record.seed, "of the noise")
      ->capture_default_str();
  AddWatchOptions(command, &options->watch);
  AddProgressOptions(command, &options->progress);
  command->add_flag("--force", options->force,
                    "replace a trace that ttrace wrote there before");
  command->footer(kRecordFooter);
  command->callback([action, options, legs, &line] {
    options->legs_given = legs->count() > 0;
    *action = [options, &line] { return RunRecord(line, options.get()); };
  });
}

}  // namespace ttrace
