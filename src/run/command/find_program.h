// Which file a shell would start for a program's name.
//
// Thread safety: reads the file system only.

#ifndef TTRACE_SRC_RUN_COMMAND_FIND_PROGRAM_H_
#define TTRACE_SRC_RUN_COMMAND_FIND_PROGRAM_H_

#include <filesystem>
#include <optional>
#include <string>

namespace ttrace {

// `word`: a path, seen from `folder`, or a name that is looked for in the
// folders of `path`. Nothing: there is no such file that can be executed.
std::optional<std::filesystem::path> FindProgram(
    const std::string& word, const std::filesystem::path& folder,
    const std::string& path);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_COMMAND_FIND_PROGRAM_H_
