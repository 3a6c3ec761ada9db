// From the project's file, and from what is typed, to the arguments of the
// `ttrace diff` that an experiment is.

#ifndef TTRACE_SRC_CLI_EXPERIMENT_OPTIONS_H_
#define TTRACE_SRC_CLI_EXPERIMENT_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "src/cli/diff.h"
#include "src/project/project_file.h"
#include "ttrace/status.h"

namespace ttrace {

// The options of `command`, a parsed `ttrace diff`, that were given and that an
// experiment may have.
GivenOptions GivenOf(const CLI::App& command);

// Reads and checks a project's file, the values of its options included. Empty:
// the one of the working folder.
Result<Project> OpenProject(const std::string& path);

// Where what lies. All absolute.
struct ExperimentFolders {
  std::string experiment;
  std::string reference;      // the trace
  std::string reference_key;  // what it depended on, a file
  std::string candidate;
};
ExperimentFolders FoldersOf(const Project& project,
                            const ChosenExperiment& chosen);

// The arguments of the diff that an experiment is: as the file says, but for
// `given`. Folders are those of the experiment unless `given` names one.
Result<DiffArguments> ArgumentsOf(const Project& project,
                                  const ChosenExperiment& chosen,
                                  const GivenOptions& given);

// `path` as short as it can be seen from `folder`.
std::string Seen(const std::string& path, const std::string& folder);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_EXPERIMENT_OPTIONS_H_
