#include "src/project/project_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "src/base/format.h"
#include "src/base/misspelling.h"
#include "src/project/option_keys.h"
#include "src/project/toml_table.h"
#include "src/trace/file.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxProjectBytes = 1 << 20;

// Names become folders.
std::optional<std::string> WrongName(const std::string& name) {
  constexpr size_t kLongest = 64;
  const bool letters = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
  if (name.empty() || !letters || name.front() == '.' || name.front() == '-' ||
      name.size() > kLongest) {
    return "'" + Printable(ShortenMiddle(Printable(name), kLongest)) +
           "' is no name of an experiment or a candidate: write at most 64 "
           "letters, digits, '_', '-' and '.', no '.' or '-' first";
  }
  if (name == "reference" || name.starts_with("reference.")) {
    return "a candidate's results cannot lie where the reference does: call it "
           "something else";
  }
  return std::nullopt;
}

class ProjectReader {
 public:
  ProjectReader(Project* project, const std::vector<KnownOption>& options)
      : project_(*project), options_(options) {}

  Status Read(const toml::table& document) {
    std::optional<TomlEntry> experiments;
    for (const TomlEntry& entry : EntriesOf(document)) {
      if (entry.key == "output") {
        TTRACE_ASSIGN_OR_RETURN(const std::string output,
                                TextOf(project_, entry));
        project_.output = InProject(output);
      } else if (entry.key == "defaults") {
        TTRACE_ASSIGN_OR_RETURN(const toml::table* table,
                                TableOf(project_, entry));
        TTRACE_RETURN_IF_ERROR(ReadDefaults(*table));
      } else if (entry.key == "experiments") {
        experiments = entry;
      } else {
        return Unknown(entry, "key", {"output", "defaults", "experiments"});
      }
    }
    if (!experiments) {
      return project_.Wrong({1, 1},
                            "there are no experiments; write one:\n"
                            "  [experiments.NAME]\n"
                            "  reference = \"python train.py\"\n"
                            "  candidate = \"python train.py --tp 2\"");
    }
    TTRACE_ASSIGN_OR_RETURN(const toml::table* table,
                            TableOf(project_, *experiments));
    for (const TomlEntry& entry : EntriesOf(*table)) {
      TTRACE_RETURN_IF_ERROR(ReadExperiment(entry));
    }
    return Done{};
  }

 private:
  std::string InProject(const std::string& path) const {
    return (fs::path(project_.folder) / path).lexically_normal().string();
  }

  Error Unknown(const TomlEntry& entry, const std::string& what,
                const std::vector<std::string>& known) const {
    std::string text = "unknown " + what + " '" + Printable(entry.key) + "'" +
                       DidYouMean(entry.key, known);
    return project_.Wrong(entry.at, text);
  }

  Status ReadDefaults(const toml::table& table) {
    for (const TomlEntry& entry : EntriesOf(table)) {
      if (entry.key == "environment") {
        TTRACE_ASSIGN_OR_RETURN(defaults_.environment,
                                VariablesOf(project_, entry));
      } else if (entry.key == "working-folder") {
        TTRACE_ASSIGN_OR_RETURN(defaults_.working_folder,
                                TextOf(project_, entry));
      } else if (entry.key == "depends") {
        TTRACE_ASSIGN_OR_RETURN(defaults_.depends, TextsOf(project_, entry));
      } else if (options_.Has(entry.key)) {
        TTRACE_RETURN_IF_ERROR(
            options_.Read(project_, entry, &default_options_));
      } else {
        return Unknown(
            entry, "key of [defaults]",
            options_.NamesAnd({"environment", "working-folder", "depends"}));
      }
    }
    return Done{};
  }

  Status ReadExperiment(const TomlEntry& at) {
    if (const auto wrong = WrongName(at.key)) {
      return project_.Wrong(at.at, *wrong);
    }
    TTRACE_ASSIGN_OR_RETURN(const toml::table* table, TableOf(project_, at));
    ProjectExperiment experiment = defaults_;
    experiment.name = at.key;
    experiment.at = at.at;
    GivenOptions options = default_options_;
    std::optional<TomlEntry> reference_at;
    std::optional<TomlEntry> candidate;
    std::optional<TomlEntry> candidates;
    for (const TomlEntry& entry : EntriesOf(*table)) {
      const std::string& key = entry.key;
      if (key == "reference" || key == "reference-trace") {
        if (reference_at) {
          return project_.Wrong(entry.at,
                                "give either reference or reference-trace");
        }
        reference_at = entry;
        experiment.reference_at = entry.at;
        TTRACE_ASSIGN_OR_RETURN(const std::string text,
                                TextOf(project_, entry));
        if (key == "reference") {
          experiment.reference_command = text;
        } else {
          experiment.reference_trace = InProject(text);
        }
      } else if (key == "candidate") {
        candidate = entry;
      } else if (key == "candidates") {
        candidates = entry;
      } else if (key == "description") {
        TTRACE_ASSIGN_OR_RETURN(experiment.description,
                                TextOf(project_, entry));
      } else if (key == "working-folder") {
        TTRACE_ASSIGN_OR_RETURN(experiment.working_folder,
                                TextOf(project_, entry));
      } else if (key == "environment" || key == "reference-environment") {
        TTRACE_ASSIGN_OR_RETURN(Variables variables,
                                VariablesOf(project_, entry));
        Variables& into = key == "environment"
                              ? experiment.environment
                              : experiment.reference_environment;
        for (auto& [name, value] : variables)
          into.insert_or_assign(name, value);
      } else if (key == "depends") {
        TTRACE_ASSIGN_OR_RETURN(auto depends, TextsOf(project_, entry));
        for (auto& one : depends) experiment.depends.push_back(std::move(one));
      } else if (options_.Has(key)) {
        TTRACE_RETURN_IF_ERROR(options_.Read(project_, entry, &options));
      } else {
        return Unknown(
            entry, "key of an experiment",
            options_.NamesAnd({"reference", "reference-trace", "candidate",
                               "candidates", "description", "working-folder",
                               "environment", "reference-environment",
                               "depends"}));
      }
    }
    if (!reference_at) {
      return project_.Wrong(at.at, "experiment '" + at.key +
                                       "' has no reference: give a command, or "
                                       "a folder as reference-trace");
    }
    if (!candidate == !candidates) {
      return project_.Wrong(at.at,
                            "experiment '" + at.key +
                                "' takes either candidate, a command, or "
                                "candidates, a table of commands");
    }
    experiment.working_folder = InProject(experiment.working_folder);
    if (candidate) {
      TTRACE_RETURN_IF_ERROR(ReadCandidate(*candidate, options, &experiment));
    } else {
      TTRACE_ASSIGN_OR_RETURN(const toml::table* all,
                              TableOf(project_, *candidates));
      for (const TomlEntry& entry : EntriesOf(*all)) {
        TTRACE_RETURN_IF_ERROR(ReadCandidate(entry, options, &experiment));
      }
      if (experiment.candidates.empty()) {
        return project_.Wrong(candidates->at, "candidates are none");
      }
    }
    project_.experiments.push_back(std::move(experiment));
    return Done{};
  }

  Status ReadCandidate(const TomlEntry& at, const GivenOptions& options,
                       ProjectExperiment* experiment) const {
    if (const auto wrong = WrongName(at.key)) {
      return project_.Wrong(at.at, *wrong);
    }
    ProjectCandidate candidate;
    candidate.name = at.key;
    candidate.options = options;
    candidate.at = at.at;
    if (const toml::table* table = at.value->as_table()) {
      for (const TomlEntry& entry : EntriesOf(*table)) {
        if (entry.key == "command") {
          TTRACE_ASSIGN_OR_RETURN(candidate.command, TextOf(project_, entry));
        } else if (entry.key == "environment") {
          TTRACE_ASSIGN_OR_RETURN(candidate.environment,
                                  VariablesOf(project_, entry));
        } else if (options_.Has(entry.key)) {
          if (ConcernsReference(entry.key)) {
            return project_.Wrong(entry.at,
                                  entry.key +
                                      " concerns the reference as well, which "
                                      "all candidates share: give it to the "
                                      "experiment");
          }
          TTRACE_RETURN_IF_ERROR(
              options_.Read(project_, entry, &candidate.options));
        } else {
          return Unknown(entry, "key of a candidate",
                         options_.NamesAnd({"command", "environment"}));
        }
      }
      if (candidate.command.empty()) {
        return project_.Wrong(at.at,
                              "candidate '" + at.key + "' has no command");
      }
    } else {
      TTRACE_ASSIGN_OR_RETURN(candidate.command, TextOf(project_, at));
    }
    experiment->candidates.push_back(std::move(candidate));
    return Done{};
  }

  Project& project_;
  const OptionKeys options_;
  ProjectExperiment defaults_;
  GivenOptions default_options_;
};

}  // namespace

Error Project::Wrong(const FilePosition& at, const std::string& message) const {
  return Invalid(fmt::format("{}:{}:{}: {}", Printable(path), at.line,
                             at.column, message));
}

bool ConcernsReference(std::string_view option) {
  for (const std::string_view one :
       {"iterations", "reference-legs", "select", "seed", "keep-values"}) {
    if (option == one) return true;
  }
  return false;
}

Result<Project> ReadProject(const std::string& path,
                            const std::vector<KnownOption>& options) {
  auto text = ReadWholeFile(path, kMaxProjectBytes, Links::kFollow);
  if (!text.ok()) {
    if (text.error().code() != ErrorCode::kNotFound) return text.error();
    return Error(ErrorCode::kNotFound,
                 "there is no project's file '" + Printable(path) +
                     "'; write one (docs/project_file.md), or name it by "
                     "--project FILE");
  }
  Project project;
  project.path = path;
  std::error_code gone;
  project.folder =
      fs::absolute(path, gone).lexically_normal().parent_path().string();
  if (gone) return Error(ErrorCode::kIo, "the working folder is gone");
  project.output = (fs::path(project.folder) / ".ttrace").string();
  const toml::parse_result document = toml::parse(*text);
  if (document.failed()) {
    const toml::parse_error& error = document.error();
    return project.Wrong({.line = error.source().begin.line,
                          .column = error.source().begin.column},
                         Printable(error.description()));
  }
  TTRACE_RETURN_IF_ERROR(
      ProjectReader(&project, options).Read(document.table()));
  return project;
}

}  // namespace ttrace
