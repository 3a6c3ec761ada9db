#include "src/cli/recording.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/experiment/leg_names.h"
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

Status CheckGraft(const std::string& what) {
  for (const char* known : {"weights,data", "weights", "data", "none"}) {
    if (what == known) return Done{};
  }
  return Error(ErrorCode::kInvalidArgument,
               "cannot graft '" + Printable(what) +
                   "'; there are weights,data and weights and data and none");
}

void RunLegLaunches(const RecordOptions& real, const CaptureSummary& summary,
                    const InterruptFlag& interrupt) {
  std::vector<std::string> legs;
  for (const std::string& leg : real.legs) {
    const auto& skipped = summary.skipped_legs;
    if (std::find(skipped.begin(), skipped.end(), leg) == skipped.end()) {
      legs.push_back(leg);
    }
  }
  if (!summary.one_launch_per_leg || legs.empty()) return;
  std::fprintf(stderr,
               "ttrace: an iteration of this framework cannot be rerun in "
               "place, so the command\n"
               "ttrace: is launched %zu more times, once for each leg.\n",
               legs.size());
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
    std::fprintf(stderr, "ttrace: leg %s (%zu of %zu)\n", run.leg.c_str(),
                 i + 1, legs.size());
    const Status prepared =
        PrepareFolder(run.folder, FolderKind::kTrace, false);
    if (!prepared.ok()) {
      Complain(prepared.error());
      return;
    }
    const Result<RecordOutcome> outcome = RecordCommand(run);
    if (outcome.ok() && outcome->capture.problem.empty()) continue;
    if (interrupt.signal.load() == 0) {
      Complain("leg " + run.leg + ": " +
               (outcome.ok() ? "the command " + Describe(outcome->launch) +
                                   "; " + outcome->capture.problem
                             : outcome.error().message()));
      PrintLogTail(run.log_file);
    }
    // A leg without records would look like a leg in which all is missing.
    const Status removed = RemoveTrace(run.folder);
    if (!removed.ok()) Complain(removed.error());
  }
}

void PrintLogTail(const std::string& log_file) {
  constexpr int kLines = 20;
  const std::vector<std::string> lines = LastLines(log_file, kLines);
  if (lines.empty()) {
    std::fprintf(stderr, "  (the command printed nothing)\n");
    return;
  }
  std::fprintf(stderr, "  the last lines of %s:\n",
               Printable(log_file).c_str());
  for (const std::string& line : lines) {
    std::fprintf(stderr, "  | %s\n", line.c_str());
  }
}

}  // namespace ttrace
