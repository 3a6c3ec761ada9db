#include <fmt/format.h>

#include "src/base/format.h"
#include "src/base/misspelling.h"
#include "src/project/project_file.h"

namespace ttrace {

Result<std::vector<ChosenExperiment>> FindExperiments(const Project& project,
                                                      std::string_view name) {
  const size_t slash = name.find('/');
  const std::string_view wanted = name.substr(0, slash);
  std::vector<std::string> names;
  for (const ProjectExperiment& experiment : project.experiments) {
    names.push_back(experiment.name);
    if (experiment.name != wanted) continue;
    std::vector<ChosenExperiment> chosen;
    std::vector<std::string> candidates;
    for (const ProjectCandidate& candidate : experiment.candidates) {
      candidates.push_back(candidate.name);
      if (slash == std::string_view::npos ||
          candidate.name == name.substr(slash + 1)) {
        chosen.push_back({&experiment, &candidate});
      }
    }
    if (!chosen.empty()) return chosen;
    const std::string_view other = name.substr(slash + 1);
    return Error(ErrorCode::kNotFound,
                 fmt::format("{}: experiment '{}' has no candidate '{}'{}",
                             Printable(project.path), experiment.name,
                             Printable(other), DidYouMean(other, candidates)));
  }
  return Error(
      ErrorCode::kNotFound,
      fmt::format(
          "{} has no experiment '{}'{} (`ttrace run --list` shows them)",
          Printable(project.path), Printable(wanted),
          DidYouMean(wanted, names)));
}

}  // namespace ttrace
