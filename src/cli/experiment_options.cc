#include "src/cli/experiment_options.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "src/base/format.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// What is no option of an experiment: an experiment's own keys, and what
// belongs to one call of the program.
bool IsOfTheFile(const std::string& name) {
  for (const char* other :
       {"help", "output", "reference", "reference-trace", "candidate",
        "project", "fresh", "force", "quiet", "json-progress"}) {
    if (name == other) return false;
  }
  return true;
}

std::vector<KnownOption> KnownOptionsOf(const CLI::App& command) {
  std::vector<KnownOption> known;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (!IsOfTheFile(name)) continue;
    known.push_back({.name = name,
                     .is_flag = option->get_items_expected_max() == 0,
                     .is_number = option->get_type_name() == "INT"});
  }
  return known;
}

Status Parse(const GivenOptions& options, DiffArguments* arguments) {
  CLI::App command;
  AddDiffOptions(&command, arguments);
  std::vector<std::string> words;
  for (const auto& [name, option] : options) {
    if (!option.is_flag) {
      words.push_back("--" + name + "=" + option.value);
    } else if (option.value == "true") {
      words.push_back("--" + name);
    }
  }
  try {
    command.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return Invalid(error.what());
  }
  return CheckDiffArguments(*arguments);
}

// One after the other, so that a mistake has its place.
Status CheckValues(const Project& project, const GivenOptions& options) {
  for (const auto& [name, option] : options) {
    DiffArguments unused;
    const Status parsed = Parse({{name, option}}, &unused);
    if (!parsed.ok()) return project.Wrong(option.at, parsed.error().message());
  }
  return Done{};
}

}  // namespace

std::string Seen(const std::string& path, const std::string& folder) {
  const std::string relative = fs::path(path).lexically_relative(folder);
  return relative.empty() || relative.starts_with("..") ? path : relative;
}

GivenOptions GivenOf(const CLI::App& command) {
  GivenOptions given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (!IsOfTheFile(name)) continue;
    const bool flag = option->get_items_expected_max() == 0;
    given[name] = {.value = flag ? "true" : option->results().front(),
                   .is_flag = flag,
                   .at = {}};
  }
  return given;
}

Result<Project> OpenProject(const std::string& path) {
  CLI::App command;
  DiffArguments unused;
  AddDiffOptions(&command, &unused);
  TTRACE_ASSIGN_OR_RETURN(
      Project project,
      ReadProject(path.empty() ? std::string(kProjectFile) : path,
                  KnownOptionsOf(command)));
  for (const ProjectExperiment& experiment : project.experiments) {
    for (const ProjectCandidate& candidate : experiment.candidates) {
      TTRACE_RETURN_IF_ERROR(CheckValues(project, candidate.options));
    }
  }
  return project;
}

ExperimentFolders FoldersOf(const Project& project,
                            const ChosenExperiment& chosen) {
  const fs::path at = fs::path(project.output) / chosen.experiment->name;
  return {.experiment = at.string(),
          .reference = (at / "reference").string(),
          .reference_key = (at / "reference.json").string(),
          .candidate = (at / chosen.candidate->name).string()};
}

Result<DiffArguments> ArgumentsOf(const Project& project,
                                  const ChosenExperiment& chosen,
                                  const GivenOptions& given) {
  const ProjectExperiment& experiment = *chosen.experiment;
  GivenOptions options = chosen.candidate->options;
  for (const auto& [name, option] : given) {
    options.insert_or_assign(name, option);
  }
  DiffArguments arguments;
  TTRACE_RETURN_IF_ERROR(Parse(options, &arguments));
  const ExperimentFolders folders = FoldersOf(project, chosen);
  const auto seen = [&](const std::string& path) {
    return path.empty() ? path : Seen(path, experiment.working_folder);
  };
  arguments.folder = seen(folders.candidate);
  arguments.reference_folder = seen(folders.reference);
  arguments.force = true;  // results of a project are ttrace's own
  arguments.reference_command = experiment.reference_command;
  arguments.reference_trace = seen(experiment.reference_trace);
  arguments.candidate_command = chosen.candidate->command;
  arguments.reference_environment = experiment.reference_environment;
  arguments.candidate_environment = chosen.candidate->environment;
  return arguments;
}

}  // namespace ttrace
