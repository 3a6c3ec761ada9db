// Qualified names of modules and parameters as a tree.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_MODULE_NAMES_H_
#define TTRACE_SRC_EXPERIMENT_MODULE_NAMES_H_

#include <string>
#include <string_view>

namespace ttrace {

// "a.b.c" -> "a.b"; a name without a dot belongs to the root "".
std::string ParentName(std::string_view fqn);

// True if `fqn` lies below `ancestor` (everything lies below the root "").
bool IsBelow(std::string_view fqn, std::string_view ancestor);

// "decoder.layers.7.fc1" -> "decoder.layers.#.fc1": the same place of the code
// in every layer. Only words that are nothing but a number are layers.
std::string WithoutLayerNumbers(std::string_view fqn);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_MODULE_NAMES_H_
