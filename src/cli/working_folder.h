// Where relative names on the command line start.

#ifndef TTRACE_SRC_CLI_WORKING_FOLDER_H_
#define TTRACE_SRC_CLI_WORKING_FOLDER_H_

#include <filesystem>
#include <string>
#include <system_error>

namespace ttrace {

// Empty if it is gone.
inline std::string WorkingFolder() {
  std::error_code ignored;
  return std::filesystem::current_path(ignored).string();
}

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_WORKING_FOLDER_H_
