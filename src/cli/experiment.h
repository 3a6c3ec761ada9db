// One experiment of a project's file, run by `ttrace diff` or `ttrace run`.

#ifndef TTRACE_SRC_CLI_EXPERIMENT_H_
#define TTRACE_SRC_CLI_EXPERIMENT_H_

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
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

// What a recorded reference is worth.
struct ReferenceState {
  bool reusable = false;
  // Why it is not, or when it was recorded, in words.
  std::string words;
  // What it depends on as that is now; of a saved trace nothing.
  nlohmann::ordered_json key;
};

// The arguments of the diff that an experiment is: as the file says, but for
// `given`. Folders are those of the experiment unless `given` names one.
Result<DiffArguments> ArgumentsOf(const Project& project,
                                  const ChosenExperiment& chosen,
                                  const GivenOptions& given);

// `arguments`: of ArgumentsOf. An experiment with a trace as its reference has
// it reusable. Fails as ReferenceKey does.
Result<ReferenceState> StateOfReference(const Project& project,
                                        const ChosenExperiment& chosen,
                                        const DiffArguments& arguments);

// `path` as short as it can be seen from `folder`.
std::string Seen(const std::string& path, const std::string& folder);

// Its next run records its reference again.
void ForgetReference(const Project& project, const ChosenExperiment& chosen);

// Runs it; `typed` has what was typed besides options of the file. Changes
// environment and working folder of this process. Returns the exit code.
int RunExperiment(const Project& project, const ChosenExperiment& chosen,
                  const DiffArguments& typed, const GivenOptions& given);

// `ttrace diff EXPERIMENT`. Returns the exit code.
int DiffExperiment(const DiffArguments& typed, const GivenOptions& given);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_EXPERIMENT_H_
