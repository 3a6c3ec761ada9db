// What the recorded reference of an experiment is worth.

#ifndef TTRACE_SRC_CLI_REFERENCE_STATE_H_
#define TTRACE_SRC_CLI_REFERENCE_STATE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "src/cli/diff.h"
#include "src/project/project_file.h"
#include "src/project/recorded_reference.h"
#include "ttrace/status.h"

namespace ttrace {

struct ReferenceState {
  bool reusable = false;
  // Why it is not, or when it was recorded, in words.
  std::string words;
  // What it depends on as that is now; of a saved trace nothing.
  nlohmann::ordered_json key;
};

// `arguments`: of ArgumentsOf, whose outdated_reference is not reusable. An
// experiment with a trace as its reference has it reusable. Fails as
// ReferenceKey does.
Result<ReferenceState> StateOfReference(const Project& project,
                                        const ChosenExperiment& chosen,
                                        const DiffArguments& arguments);

// Where it lies.
RecordedReference ReferenceOf(const Project& project,
                              const ChosenExperiment& chosen);

// Where programs of a command are looked for that sees, of `variables`, the
// first that has a PATH, or else our own.
std::string PathIn(std::initializer_list<const Variables*> variables);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_REFERENCE_STATE_H_
