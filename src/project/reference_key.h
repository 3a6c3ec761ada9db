// What a recorded reference depends on, as far as one looks: so that it is
// reused while nothing of that has changed.
//
// Looked at are the command, the variables and the working folder that the
// project's file gives, the options that concern a reference, the version of
// ttrace, the versions of the frameworks that lie beside the command's
// programs, and the content of files of the project (reference_files.h). Not
// looked at are what a script imports, data outside the project, the rest of
// the environment, and the machine.
//
// Thread safety: reads the file system only.

#ifndef TTRACE_SRC_PROJECT_REFERENCE_KEY_H_
#define TTRACE_SRC_PROJECT_REFERENCE_KEY_H_

#include <nlohmann/json.hpp>
#include <string>

#include "src/project/project_file.h"
#include "ttrace/status.h"

namespace ttrace {

// `options`: those of the run that concern the reference, by name. `path`: of
// the run's environment, where programs are looked for. Fails with
// kInvalidArgument for an entry of `depends` that no file matches, kIo for a
// file that cannot be read.
Result<nlohmann::ordered_json> ReferenceKey(const Project& project,
                                            const ProjectExperiment& experiment,
                                            const Variables& options,
                                            const std::string& path);

// What changed from `before` to `now`: "train.py has changed"; "": nothing.
// Something that is no key has changed in every respect.
std::string WhatChanged(const nlohmann::json& before,
                        const nlohmann::json& now);

}  // namespace ttrace

#endif  // TTRACE_SRC_PROJECT_REFERENCE_KEY_H_
