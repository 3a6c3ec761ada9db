// Which versions of frameworks lie beside a program of a Python environment.
//
// Thread safety: reads the file system only.

#ifndef TTRACE_SRC_PROJECT_INSTALLED_PACKAGES_H_
#define TTRACE_SRC_PROJECT_INSTALLED_PACKAGES_H_

#include <map>
#include <string>

namespace ttrace {

// Package -> version, of torch and of what capture knows of training loops,
// from the folders that an installer leaves in the environments of those words
// of `command` that are programs: a path, or a name found in `path`. Nothing is
// run.
std::map<std::string, std::string> InstalledPackages(
    const std::string& command, const std::string& working_folder,
    const std::string& path);

}  // namespace ttrace

#endif  // TTRACE_SRC_PROJECT_INSTALLED_PACKAGES_H_
