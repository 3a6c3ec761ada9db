#include "src/cli/reference_state.h"

#include <cstdlib>
#include <initializer_list>

#include "src/base/format.h"
#include "src/cli/experiment_options.h"
#include "src/project/reference_key.h"

namespace ttrace {
namespace {

Variables OptionsOfReference(const DiffArguments& arguments) {
  return {{"iterations", arguments.iterations},
          {"reference-legs", arguments.reference_legs},
          {"select", arguments.select},
          {"seed", std::to_string(arguments.seed)},
          {"keep-values", arguments.keep_values ? "true" : "false"}};
}

}  // namespace

std::string PathIn(std::initializer_list<const Variables*> variables) {
  for (const Variables* one : variables) {
    const auto found = one->find("PATH");
    if (found != one->end()) return found->second;
  }
  const char* path = std::getenv("PATH");
  return path == nullptr ? "" : path;
}

RecordedReference ReferenceOf(const Project& project,
                              const ChosenExperiment& chosen) {
  const ExperimentFolders folders = FoldersOf(project, chosen);
  return {.trace = folders.reference, .note_file = folders.reference_key};
}

Result<ReferenceState> StateOfReference(const Project& project,
                                        const ChosenExperiment& chosen,
                                        const DiffArguments& arguments) {
  const ProjectExperiment& experiment = *chosen.experiment;
  if (!experiment.reference_trace.empty()) {
    return ReferenceState{
        .reusable = true,
        .words = "the trace " + Printable(arguments.reference_trace),
        .key = {}};
  }
  ReferenceState state;
  TTRACE_ASSIGN_OR_RETURN(
      state.key,
      ReferenceKey(project, experiment, OptionsOfReference(arguments),
                   PathIn({&experiment.reference_environment,
                           &experiment.environment})));
  const RecordedReference recorded = ReferenceOf(project, chosen);
  const std::string run_id = recorded.run_id();
  state.words = !run_id.empty() && run_id == arguments.outdated_reference
                    ? "--fresh"
                    : recorded.WhyNot(state.key);
  state.reusable = state.words.empty();
  if (state.reusable) {
    state.words = "recorded " + Printable(recorded.RecordedAt());
  }
  return state;
}

}  // namespace ttrace
