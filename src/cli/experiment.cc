#include "src/cli/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/live_line.h"
#include "src/project/reference_key.h"
#include "src/run/folder_lock.h"
#include "src/trace/file.h"
#include "src/trace/note_json.h"
#include "src/trace/reader.h"

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
    known.push_back(
        {.name = name, .is_flag = option->get_items_expected_max() == 0});
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

nlohmann::json ReadKeyFile(const std::string& path) {
  constexpr size_t kLongest = 16 << 20;
  const auto text = ReadWholeFile(path, kLongest);
  return text.ok() ? ParseJson(*text) : nlohmann::json();
}

// Fails as Trace::Open, of a trace that is not whole as well.
Result<nlohmann::json> ManifestOf(const std::string& trace) {
  TTRACE_ASSIGN_OR_RETURN(const auto opened, Trace::Open(trace));
  return ParseJson(opened->manifest_json());
}

std::string RunIdOf(const std::string& trace) {
  const auto manifest = ManifestOf(trace);
  return manifest.ok() && manifest->is_object() ? TextAt(*manifest, "run_id")
                                                : "";
}

Variables OptionsOfReference(const DiffArguments& arguments) {
  return {{"iterations", arguments.iterations},
          {"reference-legs", arguments.reference_legs},
          {"select", arguments.select},
          {"seed", std::to_string(arguments.seed)},
          {"keep-values", arguments.keep_values ? "true" : "false"}};
}

// Where the reference's programs are looked for.
std::string PathOf(const ProjectExperiment& experiment) {
  for (const Variables* variables :
       {&experiment.reference_environment, &experiment.environment}) {
    const auto found = variables->find("PATH");
    if (found != variables->end()) return found->second;
  }
  const char* path = std::getenv("PATH");
  return path == nullptr ? "" : path;
}

Result<nlohmann::ordered_json> KeyOf(const Project& project,
                                     const ProjectExperiment& experiment,
                                     const DiffArguments& arguments) {
  return ReferenceKey(project, experiment, OptionsOfReference(arguments),
                      PathOf(experiment));
}

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

Result<ReferenceState> StateOfReference(const Project& project,
                                        const ChosenExperiment& chosen,
                                        const DiffArguments& arguments) {
  if (!chosen.experiment->reference_trace.empty()) {
    return ReferenceState{
        .reusable = true,
        .words = "the trace " + Printable(arguments.reference_trace),
        .key = {}};
  }
  ReferenceState state;
  TTRACE_ASSIGN_OR_RETURN(state.key,
                          KeyOf(project, *chosen.experiment, arguments));
  const ExperimentFolders folders = FoldersOf(project, chosen);
  const nlohmann::json noted = ReadKeyFile(folders.reference_key);
  if (!noted.is_object()) {
    state.words = "not recorded";
    return state;
  }
  const std::string run_id = RunIdOf(folders.reference);
  if (run_id.empty() || run_id != TextAt(noted, "run_id")) {
    state.words = "its trace is not there any more";
    return state;
  }
  state.words = WhatChanged(noted.value("key", nlohmann::json()), state.key);
  state.reusable = state.words.empty();
  if (state.reusable) {
    state.words = "recorded " + Printable(TextAt(noted, "at"));
  }
  return state;
}

void ForgetReference(const Project& project, const ChosenExperiment& chosen) {
  std::error_code missing;
  fs::remove(FoldersOf(project, chosen).reference_key, missing);
}

int RunExperiment(const Project& project, const ChosenExperiment& chosen,
                  const DiffArguments& typed, const GivenOptions& given) {
  auto prepared = ArgumentsOf(project, chosen, given);
  if (!prepared.ok()) return Complain(prepared.error());
  DiffArguments arguments = *std::move(prepared);
  arguments.progress = typed.progress;
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
  arguments.reference_recorded = [&]() -> Status {
    nlohmann::ordered_json note;
    TTRACE_ASSIGN_OR_RETURN(const nlohmann::json manifest,
                            ManifestOf(folders.reference));
    note["run_id"] = TextAt(manifest, "run_id");
    note["at"] = TextAt(manifest, "created");
    note["key"] = state->key;
    return WriteFileAtomically(folders.reference_key, JsonText(note) + "\n");
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
  if (typed.fresh) ForgetReference(*project, chosen->front());
  return RunExperiment(*project, chosen->front(), typed, given);
}

}  // namespace ttrace
