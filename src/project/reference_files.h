// The files of the project that a reference depends on: those that its command
// names, scripts and modules among them, and those that `depends` lists.
//
// Thread safety: reads the file system only.

#ifndef TTRACE_SRC_PROJECT_REFERENCE_FILES_H_
#define TTRACE_SRC_PROJECT_REFERENCE_FILES_H_

#include <filesystem>
#include <map>
#include <string>

#include "src/project/project_file.h"
#include "ttrace/status.h"

namespace ttrace {

struct ReferenceFiles {
  // By name in the project, which is with slashes and from its folder.
  std::map<std::string, std::filesystem::path> files;
  // Whether what its command runs is known: a Python file is among them, or
  // the command itself holds the text.
  bool has_script = false;
};

// None is opened but to see whether it is a script. Fails with
// kInvalidArgument for an entry of `depends` that no file matches.
Result<ReferenceFiles> FilesOfReference(const Project& project,
                                        const ProjectExperiment& experiment);

}  // namespace ttrace

#endif  // TTRACE_SRC_PROJECT_REFERENCE_FILES_H_
