// What can be known to be wrong with experiments before one of them is run.

#ifndef TTRACE_SRC_CLI_LOOK_AT_EXPERIMENTS_H_
#define TTRACE_SRC_CLI_LOOK_AT_EXPERIMENTS_H_

#include <string>
#include <vector>

#include "src/project/project_file.h"

namespace ttrace {

// Looks for what they name: working folders, traces, files, programs and
// scripts. Says on stderr each that is not there, and once of an experiment
// that its reference's script is not known. `fresh`: references are recorded
// again. False: something is missing, and nothing is to be run.
bool LookAtExperiments(const Project& project,
                       const std::vector<ChosenExperiment>& chosen, bool fresh);

// Why a change of its script would not be noticed; "": it would be.
std::string UnknownScriptWords(const Project& project,
                               const ProjectExperiment& experiment);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_LOOK_AT_EXPERIMENTS_H_
