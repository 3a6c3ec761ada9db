// `ttrace baseline TRACE -o FOLDER`: a reference in summaries, to keep. With a
// command in place of the trace, the reference is recorded first.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/interrupt.h"
#include "src/cli/live_line.h"
#include "src/cli/progress.h"
#include "src/cli/recording.h"
#include "src/cli/run_side.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/leg_names.h"
#include "src/in_place/condense_trace.h"
#include "src/run/free_space.h"
#include "src/run/output_folder.h"
#include "src/trace/reader.h"
#include "src/trace/segments/segment_pool.h"

namespace ttrace {
namespace {

constexpr const char* kBaselineFooter = R"(
Of each tensor a digest and a sketch are kept instead of its values, and of the
noise reruns what they differ by: small enough for a repository, and a check
against it says how far a candidate is, to some percent, wherever it is sharded
otherwise. What takes values is left out: weights and data cannot be grafted
from a baseline, and modules not be isolated. Start the candidate from the same
weights and data.
A command after -- is recorded as the reference, without dropout as `diff` runs
both sides, into FOLDER.recording, which is removed at the end. What --force
replaces stays until then.
Exit codes: 0 once the baseline is written, 2 if it could not be.

Examples:
  ttrace baseline reference -o golden
  ttrace baseline -o accepted --iterations 0:1 -- python train.py
  ttrace baseline reference -o smaller --buckets 256
  ttrace check golden candidate)";

struct BaselineArguments {
  std::string trace;
  std::string output;
  size_t buckets = kSketchBuckets;
  bool force = false;
  // Of a command.
  std::string iterations = "0:2";
  int64_t seed = 0;
  WatchOptions watch;
  ProgressOptions progress;
};

// A reference that is being recorded, for as long as this lives. What is in the
// folder is ours, whole or not.
class Recording {
 public:
  // REQUIRES: CheckReplaceable(folder)
  explicit Recording(std::string folder) : folder_(std::move(folder)) {}
  ~Recording() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    std::filesystem::remove(Log(), ignored);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  const std::string& folder() const { return folder_; }
  std::string Log() const { return folder_ + ".log"; }

 private:
  std::string folder_;
};

// Beside the folder, on the same disk, whatever ends its name.
std::string RecordingFolder(const std::string& folder) {
  const std::filesystem::path path =
      (std::filesystem::absolute(folder) / "").lexically_normal();
  return path.parent_path().string() + ".recording";
}

Result<RecordOptions> ReferenceOf(const BaselineArguments& options,
                                  const std::vector<std::string>& command,
                                  const Recording& recording) {
  RecordOptions run;
  run.argv = command;
  run.folder = recording.folder();
  run.log_file = recording.Log();
  run.as_reference = true;
  run.dropout_off = true;  // as `diff` runs what is compared with it
  run.end_when_captured = true;
  run.end_leftovers = true;
  run.seed = options.seed;
  TTRACE_ASSIGN_OR_RETURN(run.iterations, ParseIterations(options.iterations));
  TTRACE_ASSIGN_OR_RETURN(run.legs, ExpandLegs(kSummarizedReferenceLegs));
  TTRACE_RETURN_IF_ERROR(SetWatch(options.watch, "reference: ", &run));
  TTRACE_RETURN_IF_ERROR(UseOwnEnvironment(&run));
  return run;
}

// Of all files, as a repository has to keep them.
double SizeOf(const std::string& folder) {
  double bytes = 0;
  std::error_code error;
  std::filesystem::recursive_directory_iterator it(folder, error);
  for (; !error && it != std::filesystem::recursive_directory_iterator();
       it.increment(error)) {
    std::error_code unknown;
    const auto size = it->file_size(unknown);
    if (!unknown) bytes += static_cast<double>(size);
  }
  return bytes;
}

int Condense(const BaselineArguments& options) {
  RaiseOpenFileLimit();
  {
    // Before anything is replaced.
    const auto trace = Trace::Open(options.trace);
    if (!trace.ok()) return Complain(trace.error());
  }
  auto prepared =
      PrepareFolder(options.output, FolderKind::kTrace, options.force);
  if (!prepared.ok()) return Complain(prepared.error());
  std::optional<FolderLock> folder = *std::move(prepared);
  std::optional<LiveLine> line(std::in_place);
  CondenseOptions condense;
  condense.from = options.trace;
  condense.to = options.output;
  condense.buckets = options.buckets;
  condense.progress = [&](int64_t done, int64_t total) {
    line->Show({FormatCount(done) + " of " + FormatCount(total) + " tensors"});
  };
  const auto done = CondenseTrace(condense);
  line.reset();
  if (!done.ok()) {
    // What is there of it is no baseline.
    folder.reset();
    (void)RemoveTrace(options.output).ok();
    return Complain(done.error().message() + FullDiskWords(options.output));
  }
  std::printf(
      "%s: %s of %s tensors are summaries, %s instead of %s; %s on disk\n",
      Printable(options.output).c_str(), FormatCount(done->summaries).c_str(),
      FormatCount(done->records).c_str(),
      FormatBytes(static_cast<double>(done->bytes_after)).c_str(),
      FormatBytes(static_cast<double>(done->bytes_before)).c_str(),
      FormatBytes(SizeOf(options.output)).c_str());
  return 0;
}

int RecordAndCondense(BaselineArguments options,
                      const std::vector<std::string>& command) {
  UseProgressOptions(options.progress);
  const std::string folder = RecordingFolder(options.output);
  for (const Status& possible :
       {CheckReplaceable(options.output, FolderKind::kTrace, options.force),
        CheckReplaceable(folder, FolderKind::kTrace, true)}) {
    if (!possible.ok()) return Complain(possible.error());
  }
  const Recording recording(folder);
  Result<RecordOptions> reference = ReferenceOf(options, command, recording);
  if (!reference.ok()) return Complain(reference.error());
  RecordOptions run = *std::move(reference);
  WarnOfOrphans();
  SideEnd end = SideEnd::kGood;
  {
    const InterruptGuard guard;
    run.interrupt = guard.flag();
    end = RunSide("reference", std::move(run), true, guard).end;
    if (end == SideEnd::kInterrupted) {
      Complain("interrupted; all processes of the run are ended");
      return guard.exit_code();
    }
  }
  if (end != SideEnd::kGood) {
    return Complain("the reference has to be a run that works");
  }
  options.trace = recording.folder();
  return Condense(options);
}

int Baseline(const CommandLine& line, const BaselineArguments& options) {
  if (options.trace.empty() == line.after_dashes.empty()) {
    return Complain(
        "baseline: give a trace, or after -- the command of a reference to "
        "record");
  }
  return line.after_dashes.empty()
             ? Condense(options)
             : RecordAndCondense(options, line.after_dashes);
}

}  // namespace

void AddBaseline(CLI::App& app, const CommandLine& line, Action* action) {
  CLI::App* command = app.add_subcommand(
      "baseline", "Condense a reference to what later checks need of it.");
  const auto options = std::make_shared<BaselineArguments>();
  command->add_option("TRACE", options->trace,
                      "a complete reference; or a command after --");
  command->add_option("-o,--output", options->output, "folder of the baseline")
      ->required();
  command
      ->add_option("--buckets", options->buckets,
                   "of a sketch: a distance is known to 1/sqrt(2 N) of it")
      ->check(CLI::IsMember({64, 128, 256, 512, 1024, 2048, 4096}))
      ->capture_default_str();
  command->add_flag("--force", options->force,
                    "replace what ttrace wrote to the folder before");
  command
      ->add_option("--iterations", options->iterations,
                   "of a command: optimizer steps to capture, FIRST:END")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the noise")
      ->capture_default_str();
  AddWatchOptions(command, &options->watch);
  AddProgressOptions(command, &options->progress);
  command->footer(kBaselineFooter);
  command->callback([action, options, &line] {
    *action = [options, &line] { return Baseline(line, *options); };
  });
}

}  // namespace ttrace
