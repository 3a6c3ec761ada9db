// Modules that one run has and another has as a part of a larger one, as a norm
// within the linear behind it.
//
// What such a part is given, and its parameters, are recorded under the names
// that they have where it is a module; what passes between it and the rest
// exists in one of the runs only.
//
// Thread safety: plain values, pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_FUSED_MODULES_H_
#define TTRACE_SRC_EXPERIMENT_FUSED_MODULES_H_

#include <map>
#include <string>
#include <utility>

#include "src/trace/reader.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

struct FusedModules {
  // The part, by its name where it is a module -> the module that does it here.
  std::map<std::string, std::string> within;
  // The name in the records -> the module or parameter that it is in this run.
  std::map<std::string, std::string> names;
  // (module, role) of what this run does not make -> why.
  std::map<std::pair<std::string, Role>, std::string> absent;
};

// From the notes `fused` of all ranks; of two that contradict each other, that
// of the lower rank holds. What cannot be read is left out.
FusedModules ReadFusedModules(const Trace& trace);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_FUSED_MODULES_H_
