#include "src/project/installed_packages.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kPackages = {
    "accelerate",        "lightning", "megatron_core",
    "pytorch_lightning", "torch",     "transformers"};

bool IsProgram(const fs::path& path) {
  std::error_code missing;
  return fs::is_regular_file(path, missing) && access(path.c_str(), X_OK) == 0;
}

std::optional<fs::path> FindProgram(const std::string& word,
                                    const fs::path& working_folder,
                                    const std::string& path) {
  if (word.find('/') != std::string::npos) {
    const fs::path program = working_folder / word;
    return IsProgram(program) ? std::optional(program) : std::nullopt;
  }
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path program =
        working_folder / path.substr(begin, end - begin) / word;
    if (IsProgram(program)) return program;
    begin = end + 1;
  }
  return std::nullopt;
}

// ROOT/lib/python3.11/site-packages, and Debian's names of it.
std::vector<fs::path> PackageFolders(const fs::path& root) {
  std::vector<fs::path> folders;
  for (const char* library : {"lib", "lib64", "local/lib"}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root / library, ignored)) {
      if (!entry.path().filename().string().starts_with("python")) continue;
      folders.push_back(entry.path() / "site-packages");
      folders.push_back(entry.path() / "dist-packages");
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

// "torch-2.13.0+cpu.dist-info"
void AddPackages(const fs::path& folder,
                 std::map<std::string, std::string>* packages) {
  constexpr std::string_view kEnd = ".dist-info";
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(kEnd)) continue;
    const std::string stem = file.substr(0, file.size() - kEnd.size());
    const size_t dash = stem.find('-');
    if (dash == std::string::npos) continue;
    const std::string name = stem.substr(0, dash);
    if (std::find(kPackages.begin(), kPackages.end(), name) ==
        kPackages.end()) {
      continue;
    }
    // Of several environments each counts.
    std::string& versions = (*packages)[name];
    if (!versions.empty()) versions += ", ";
    versions += stem.substr(dash + 1);
  }
}

}  // namespace

std::map<std::string, std::string> InstalledPackages(
    const std::vector<std::string>& words, const std::string& working_folder,
    const std::string& path) {
  std::set<fs::path> roots;
  for (const std::string& word : words) {
    if (word.empty()) continue;
    // Not what a link leads to: an environment's python is one, to another's.
    if (const auto program = FindProgram(word, working_folder, path)) {
      roots.insert(program->lexically_normal().parent_path().parent_path());
    }
  }
  std::map<std::string, std::string> packages;
  std::set<fs::path> seen;
  for (const fs::path& root : roots) {
    for (const fs::path& folder : PackageFolders(root)) {
      std::error_code missing;
      // lib64 is a link to lib.
      const fs::path real = fs::canonical(folder, missing);
      if (!missing && seen.insert(real).second) AddPackages(real, &packages);
    }
  }
  return packages;
}

}  // namespace ttrace
