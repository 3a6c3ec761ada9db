#include "src/cli/experiment.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/experiment_options.h"
#include "src/cli/live_line.h"
#include "src/cli/look_at_experiments.h"
#include "src/cli/reference_state.h"
#include "src/run/folder_lock.h"
#include "src/trace/file.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

Status MakeFolders(const Project& project, const ExperimentFolders& folders) {
  std::error_code error;
  const bool made = fs::create_directories(project.output, error);
  if (!error) fs::create_directories(folders.experiment, error);
  if (error) {
    return Error(ErrorCode::kIo, "cannot make the folder '" +
                                     Printable(folders.experiment) +
                                     "': " + error.message() +
                                     "; give another one as `output`");
  }
  if (!made) return Done{};
  // Gigabytes that belong into no repository.
  return WriteFileAtomically((fs::path(project.output) / ".gitignore").string(),
                             "*\n");
}

Status Enter(const Project& project, const ProjectExperiment& experiment) {
  std::error_code error;
  fs::current_path(experiment.working_folder, error);
  if (error) {
    return project.Wrong(experiment.at,
                         "working-folder '" +
                             Printable(experiment.working_folder) +
                             "': " + error.message());
  }
  for (const auto& [name, value] : experiment.environment) {
    if (setenv(name.c_str(), value.c_str(), 1) != 0) {
      return Error(ErrorCode::kIo, "cannot set " + Printable(name));
    }
  }
  return Done{};
}

}  // namespace

int RunExperiment(const Project& project, const ChosenExperiment& chosen,
                  const DiffArguments& typed, const GivenOptions& given) {
  auto prepared = ArgumentsOf(project, chosen, given);
  if (!prepared.ok()) return Complain(prepared.error());
  DiffArguments arguments = *std::move(prepared);
  arguments.progress = typed.progress;
  arguments.outdated_reference = typed.outdated_reference;
  if (!typed.folder.empty()) {
    std::error_code gone;
    arguments.folder = fs::absolute(typed.folder, gone).string();
    arguments.force = typed.force;
  }
  const ExperimentFolders folders = FoldersOf(project, chosen);
  if (const Status made = MakeFolders(project, folders); !made.ok()) {
    return Complain(made.error());
  }
  const auto lock = FolderLock::Take(folders.experiment);
  if (!lock.ok()) return Complain(lock.error());
  const auto state = StateOfReference(project, chosen, arguments);
  if (!state.ok()) return Complain(state.error());
  if (const Status entered = Enter(project, *chosen.experiment);
      !entered.ok()) {
    return Complain(entered.error());
  }
  if (!chosen.experiment->reference_trace.empty()) return Diff(arguments);
  if (state->reusable) {
    arguments.reference_command.clear();
    arguments.reference_trace = arguments.reference_folder;
    SayAside("the reference is reused, " + state->words +
             "; nothing that was looked at has changed");
    return Diff(arguments);
  }
  SayAside("the reference is to be recorded: " + state->words);
  arguments.reference_recorded = [&](const std::string& trace) {
    return ReferenceOf(project, chosen).Replace(trace, state->key);
  };
  return Diff(arguments);
}

int DiffExperiment(const DiffArguments& typed, const GivenOptions& given) {
  UseProgressOptions(typed.progress);
  if (!typed.reference_command.empty() || !typed.candidate_command.empty() ||
      !typed.reference_trace.empty()) {
    return Complain(
        "unexpected argument '" + Printable(typed.experiment) +
        "': an experiment of ttrace.toml has commands of its own; quote each "
        "command, so that it is one argument:\n"
        "  ttrace diff -o DIR --reference \"python train.py\" --candidate "
        "\"python train.py --tp 2\"");
  }
  const auto project = OpenProject(typed.project_file);
  if (!project.ok()) return Complain(project.error());
  const auto chosen = FindExperiments(*project, typed.experiment);
  if (!chosen.ok()) return Complain(chosen.error());
  if (chosen->size() > 1) {
    std::string names;
    for (const ChosenExperiment& one : *chosen) {
      names += (names.empty() ? "" : ", ") + one.name();
    }
    return Complain(
        "experiment '" + Printable(typed.experiment) + "' has " +
        std::to_string(chosen->size()) + " candidates: name one of " + names +
        ", or run them all: ttrace run " + Printable(typed.experiment));
  }
  if (!LookAtExperiments(*project, *chosen, typed.fresh)) {
    return kCouldNotDecide;
  }
  DiffArguments arguments = typed;
  if (typed.fresh) {
    arguments.outdated_reference =
        ReferenceOf(*project, chosen->front()).run_id();
  }
  return RunExperiment(*project, chosen->front(), arguments, given);
}

}  // namespace ttrace
