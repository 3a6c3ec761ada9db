#include "src/project/installed_packages.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "src/run/command/find_program.h"
#include "src/run/command/simple_commands.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kPackages = {
    "accelerate",        "lightning", "megatron_core",
    "pytorch_lightning", "torch",     "transformers"};

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
    const std::string& command, const std::string& working_folder,
    const std::string& path) {
  std::set<fs::path> roots;
  for (const SimpleCommand& one : SimpleCommands(command, working_folder)) {
    for (const ShellToken& word : one.words) {
      if (word.text.empty()) continue;
      const auto program =
          FindProgram(word.text, one.folder.value_or(working_folder), path);
      if (!program) continue;
      // Not what a link leads to: an environment's python is one, to another's.
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
