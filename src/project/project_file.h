// ttrace.toml: the experiments of a project. docs/project_file.md has every
// key.
//
// What is wrong with the file is said with its line and column, and with the
// nearest name that would be right.
//
// Thread safety: plain values and functions that read the file system only.

#ifndef TTRACE_SRC_PROJECT_PROJECT_FILE_H_
#define TTRACE_SRC_PROJECT_PROJECT_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ttrace/status.h"

namespace ttrace {

inline constexpr std::string_view kProjectFile = "ttrace.toml";

// Of a key, from 1.
struct FilePosition {
  int64_t line = 0;
  int64_t column = 0;
  auto operator<=>(const FilePosition&) const = default;
};

// An option of `ttrace diff`, by its long name without dashes.
struct KnownOption {
  std::string name;
  bool is_flag = false;
  bool is_number = false;  // a whole one
};

struct GivenOption {
  std::string value;  // of a flag "true" or "false"
  bool is_flag = false;
  FilePosition at;
};
using GivenOptions = std::map<std::string, GivenOption>;
using Variables = std::map<std::string, std::string>;  // of the environment

struct ProjectCandidate {
  std::string name;
  std::string command;
  GivenOptions options;   // all of them, those of its experiment included
  Variables environment;  // besides the experiment's
  FilePosition at;
};

struct ProjectExperiment {
  std::string name;
  std::string description;
  std::string working_folder;  // absolute
  std::string reference_command;
  std::string reference_trace;      // absolute; either this or the command
  Variables environment;            // of both sides
  Variables reference_environment;  // besides
  // Files that the reference depends on besides those that its command names.
  std::vector<std::pair<std::string, FilePosition>> depends;
  std::vector<ProjectCandidate> candidates;  // at least one
  FilePosition at;
  FilePosition reference_at;  // of the command or the trace
};

struct Project {
  std::string path;                            // as given
  std::string folder;                          // absolute: where the file lies
  std::string output;                          // absolute: where results go
  std::vector<ProjectExperiment> experiments;  // as in the file

  // "<path>:<line>:<column>: <message>"
  Error Wrong(const FilePosition& at, const std::string& message) const;
};

// Of an option that concerns the reference: each of its values takes a
// recording of its own.
bool ConcernsReference(std::string_view option);

// `options`: what `ttrace diff` takes. Fails with kNotFound if there is no such
// file, kInvalidArgument for what it may not say, kIo otherwise.
Result<Project> ReadProject(const std::string& path,
                            const std::vector<KnownOption>& options);

// NAME or NAME/CANDIDATE. Fails with kNotFound with the nearest name.
struct ChosenExperiment {
  const ProjectExperiment* experiment = nullptr;
  const ProjectCandidate* candidate = nullptr;
  std::string name() const { return experiment->name + "/" + candidate->name; }
};
Result<std::vector<ChosenExperiment>> FindExperiments(const Project& project,
                                                      std::string_view name);

}  // namespace ttrace

#endif  // TTRACE_SRC_PROJECT_PROJECT_FILE_H_
