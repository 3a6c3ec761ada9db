#include "src/project/depended_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "src/base/format.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

class DependsWalk {
 public:
  DependsWalk(const Project& project, const ProjectExperiment& experiment)
      : project_(project) {
    for (const auto& [pattern, at] : experiment.depends) {
      patterns_.push_back(pattern);
      // Up to where anything may stand.
      beginnings_.push_back(pattern.substr(0, pattern.find_first_of("*?[\\")));
    }
    any_.resize(patterns_.size());
  }

  // `name` of the folder in the project, with a slash behind it; "" of itself.
  void Look(const std::string& name) {
    std::error_code error;
    fs::directory_iterator it(fs::path(project_.folder) / name,
                              fs::directory_options::skip_permission_denied,
                              error);
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
      const std::string last = it->path().filename().string();
      std::error_code gone;
      if (it->is_directory(gone)) {
        const std::string folder = name + last + "/";
        if (!last.starts_with(".") && it->path() != fs::path(project_.output) &&
            MayHoldMatches(folder, it->is_symlink(gone))) {
          Look(folder);
        }
      } else if (it->is_regular_file(gone)) {
        Match(name + last);
      }
    }
  }

  bool Any(size_t pattern) const { return any_[pattern]; }
  std::vector<std::string> found() const {
    return {found_.begin(), found_.end()};
  }

 private:
  bool MayHoldMatches(const std::string& folder, bool is_link) const {
    return std::any_of(beginnings_.begin(), beginnings_.end(),
                       [&](const std::string& beginning) {
                         return beginning.starts_with(folder) ||
                                (!is_link && folder.starts_with(beginning));
                       });
  }

  void Match(const std::string& name) {
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (fnmatch(patterns_[i].c_str(), name.c_str(), 0) != 0) continue;
      any_[i] = true;
      found_.insert(name);
    }
  }

  const Project& project_;
  std::vector<std::string> patterns_;
  std::vector<std::string> beginnings_;
  std::vector<bool> any_;
  std::set<std::string> found_;
};

}  // namespace

Result<std::vector<std::string>> DependedFiles(
    const Project& project, const ProjectExperiment& experiment) {
  if (experiment.depends.empty()) return std::vector<std::string>();
  DependsWalk walk(project, experiment);
  walk.Look("");
  for (size_t i = 0; i < experiment.depends.size(); ++i) {
    if (walk.Any(i)) continue;
    const auto& [pattern, at] = experiment.depends[i];
    std::error_code missing;
    const bool folder =
        fs::is_directory(fs::path(project.folder) / pattern, missing);
    return project.Wrong(
        at,
        "no file of the project matches '" + Printable(pattern) + "'; " +
            (folder ? "it is a folder: write '" +
                          Printable((fs::path(pattern) / "*").string()) + "'"
                    : "patterns are relative to the folder of this file, "
                      "and '*' matches slashes, too"));
  }
  return walk.found();
}

}  // namespace ttrace
