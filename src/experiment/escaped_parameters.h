// Parameters that leave the module that owns them.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_EXPERIMENT_ESCAPED_PARAMETERS_H_
#define TTRACE_SRC_EXPERIMENT_ESCAPED_PARAMETERS_H_

#include <set>
#include <string>

namespace ttrace {

// Parameters that a module returns for other code to use, as a linear its bias:
// their gradients are made by that code.
struct EscapedParameters {
  std::set<std::string> modules;  // that return a parameter, theirs or not
  std::set<std::string> parameters;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ESCAPED_PARAMETERS_H_
