#include "src/run/command/find_program.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>

namespace ttrace {
namespace {

namespace fs = std::filesystem;

bool IsProgram(const fs::path& path) {
  std::error_code missing;
  return fs::is_regular_file(path, missing) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::optional<fs::path> FindProgram(const std::string& word,
                                    const fs::path& folder,
                                    const std::string& path) {
  if (word.find('/') != std::string::npos) {
    const fs::path program = folder / word;
    return IsProgram(program) ? std::optional(program) : std::nullopt;
  }
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path program = folder / path.substr(begin, end - begin) / word;
    if (IsProgram(program)) return program;
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace ttrace
