// The files of a project that the patterns of `depends` match.
//
// Thread safety: reads the file system only.

#ifndef TTRACE_SRC_PROJECT_DEPENDED_FILES_H_
#define TTRACE_SRC_PROJECT_DEPENDED_FILES_H_

#include <string>
#include <vector>

#include "src/project/project_file.h"
#include "ttrace/status.h"

namespace ttrace {

// Their names from the project's folder. Hidden folders and the results are
// left out. Into a folder that is a link one looks where a pattern names it
// ("model/*.py", not "*.py"): what it leads to may be as large as a data set,
// or be the project again. Fails with kInvalidArgument for a pattern that
// nothing matches.
Result<std::vector<std::string>> DependedFiles(
    const Project& project, const ProjectExperiment& experiment);

}  // namespace ttrace

#endif  // TTRACE_SRC_PROJECT_DEPENDED_FILES_H_
