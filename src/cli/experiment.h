// One experiment of a project's file, run by `ttrace diff` or `ttrace run`.

#ifndef TTRACE_SRC_CLI_EXPERIMENT_H_
#define TTRACE_SRC_CLI_EXPERIMENT_H_

#include "src/cli/diff.h"
#include "src/project/project_file.h"

namespace ttrace {

// Runs it; `typed` has what was typed besides options of the file. Changes
// environment and working folder of this process. Returns the exit code.
int RunExperiment(const Project& project, const ChosenExperiment& chosen,
                  const DiffArguments& typed, const GivenOptions& given);

// `ttrace diff EXPERIMENT`. Returns the exit code.
int DiffExperiment(const DiffArguments& typed, const GivenOptions& given);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_EXPERIMENT_H_
