#include "src/cli/look_at_experiments.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/live_line.h"
#include "src/cli/reference_state.h"
#include "src/project/reference_files.h"
#include "src/run/command/missing_program.h"
#include "src/trace/format.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

Status CheckWorkingFolder(const Project& project,
                          const ProjectExperiment& experiment) {
  std::error_code missing;
  if (fs::is_directory(experiment.working_folder, missing)) return Done{};
  return project.Wrong(experiment.at, "working-folder '" +
                                          Printable(experiment.working_folder) +
                                          "' is not there, or no folder");
}

Status CheckReferenceTrace(const Project& project,
                           const ProjectExperiment& experiment) {
  const fs::path trace = experiment.reference_trace;
  if (trace.empty()) return Done{};
  // Of the project's own results: an experiment before this one may make it.
  const fs::path in_results = trace.lexically_relative(project.output);
  if (!in_results.empty() && *in_results.begin() != "..") return Done{};
  std::error_code missing;
  if (fs::exists(trace / kManifestFile, missing)) return Done{};
  return project.Wrong(
      experiment.reference_at,
      "reference-trace '" + Printable(trace.string()) +
          "' is no folder of a trace; make one: ttrace record --as-reference "
          "-o " +
          Printable(trace.string()) + " -- COMMAND");
}

// Of a reference that lies there its command may not be needed.
Status CheckReference(const Project& project, const ChosenExperiment& chosen,
                      bool fresh) {
  const ProjectExperiment& experiment = *chosen.experiment;
  TTRACE_RETURN_IF_ERROR(CheckWorkingFolder(project, experiment));
  TTRACE_RETURN_IF_ERROR(CheckReferenceTrace(project, experiment));
  TTRACE_ASSIGN_OR_RETURN(const ReferenceFiles files,
                          FilesOfReference(project, experiment));
  if (experiment.reference_command.empty() ||
      (!fresh && !ReferenceOf(project, chosen).run_id().empty())) {
    return Done{};
  }
  const Status there = CheckProgramIsThere(
      experiment.reference_command, experiment.working_folder,
      PathIn({&experiment.reference_environment, &experiment.environment}));
  if (there.ok()) return Done{};
  return project.Wrong(experiment.reference_at,
                       "reference: " + there.error().message());
}

Status CheckCandidate(const Project& project, const ChosenExperiment& chosen) {
  const ProjectCandidate& candidate = *chosen.candidate;
  const Status there = CheckProgramIsThere(
      candidate.command, chosen.experiment->working_folder,
      PathIn({&candidate.environment, &chosen.experiment->environment}));
  if (there.ok()) return Done{};
  return project.Wrong(candidate.at,
                       candidate.name + ": " + there.error().message());
}

}  // namespace

std::string UnknownScriptWords(const Project& project,
                               const ProjectExperiment& experiment) {
  if (experiment.reference_command.empty()) return "";
  const auto files = FilesOfReference(project, experiment);
  if (!files.ok() || files->has_script) return "";
  return "which script of the project the reference runs cannot be seen from "
         "its command: no change of it is noticed; name it in `depends`, or "
         "use --fresh";
}

bool LookAtExperiments(const Project& project,
                       const std::vector<ChosenExperiment>& chosen,
                       bool fresh) {
  bool good = true;
  const auto take = [&](const Status& looked) {
    if (!looked.ok()) Complain(looked.error());
    good &= looked.ok();
    return looked.ok();
  };
  std::set<const ProjectExperiment*> seen;
  std::set<const ProjectExperiment*> wrong;
  for (const ChosenExperiment& one : chosen) {
    if (seen.insert(one.experiment).second &&
        !take(CheckReference(project, one, fresh))) {
      wrong.insert(one.experiment);
    }
    // In a folder that is missing no script is there either.
    if (!wrong.contains(one.experiment)) take(CheckCandidate(project, one));
  }
  if (!good) return false;
  for (const ChosenExperiment& one : chosen) {
    if (seen.erase(one.experiment) == 0) continue;
    const std::string words = UnknownScriptWords(project, *one.experiment);
    if (!words.empty()) SayAside(one.experiment->name + ": " + words);
  }
  return true;
}

}  // namespace ttrace
