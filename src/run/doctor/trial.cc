// A run of two ranks on CPUs, recorded as any other: if it leaves a trace of
// both, launcher, ports, hook, torch and the writer work together.

#include <algorithm>
#include <filesystem>

#include "src/base/format.h"
#include "src/run/doctor/python.h"
#include "src/run/record_command.h"
#include "src/trace/reader.h"

namespace ttrace {
namespace {

constexpr int kTrialRanks = 2;

std::string WhyNoTrace(const RecordOutcome& outcome,
                       const std::string& folder) {
  if (!outcome.capture.problem.empty()) return outcome.capture.problem;
  if (ShellExitCode(outcome.launch) != 0) return DescribeEnd(outcome);
  const auto trace = Trace::Open(folder);
  if (!trace.ok()) return trace.error().message();
  if ((*trace)->world_size() != kTrialRanks ||
      !(*trace)->missing_ranks().empty()) {
    return "a rank left no trace";
  }
  for (const RankTrace& rank : (*trace)->ranks()) {
    if (!rank.complete || !rank.Completed(0, kReal)) {
      return "rank " + std::to_string(rank.meta.rank) +
             " did not record all of its step";
    }
  }
  return (*trace)->records().empty() ? "nothing was recorded" : "";
}

}  // namespace

void TryToRecord(const PythonToLookAt& python, HealthList* out) {
  RecordOptions run;
  run.argv = {python.interpreter,
              "-m",
              "torch.distributed.run",
              "--standalone",
              "--nproc-per-node",
              std::to_string(kTrialRanks),
              python.package_folder + "/doctor/trial_rank.py"};
  run.folder = python.scratch + "/trace";
  run.log_file = python.scratch + "/trial.log";
  run.hook_folder = python.package_folder + "/hook";
  run.environment = python.environment;
  run.iterations = {0, 1};
  run.timeout_seconds = python.timeout_seconds;
  run.end_leftovers = true;
  run.interrupt = python.interrupt;
  std::error_code failed;
  std::filesystem::create_directory(run.folder, failed);
  const Result<RecordOutcome> outcome = RecordCommand(run);
  if (!outcome.ok()) {
    out->Broken("trial", outcome.error().message(), "");
    return;
  }
  std::string why = WhyNoTrace(*outcome, run.folder);
  std::replace(why.begin(), why.end(), '\n', ' ');
  if (why.empty()) {
    out->Well("trial", "two ranks with gloo were recorded in " +
                           FormatSeconds(outcome->launch.seconds));
    return;
  }
  out->Broken("trial",
              "two ranks with gloo were not recorded: " + Printable(why),
              "what else is broken here comes first; then run it yourself: "
              "ttrace record -o trial -- torchrun --standalone "
              "--nproc-per-node 2 " +
                  Printable(run.argv.back()));
}

}  // namespace ttrace
