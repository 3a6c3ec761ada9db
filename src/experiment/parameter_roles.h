// Roles that belong to a parameter.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_PARAMETER_ROLES_H_
#define TTRACE_SRC_EXPERIMENT_PARAMETER_ROLES_H_

#include "ttrace/tensor_id.h"

namespace ttrace {

// Named by the parameter, not by its module, before or after reduction.
constexpr bool IsParameterGradient(Role role) {
  return role == Role::kGradLocal || role == Role::kGradReduced;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_PARAMETER_ROLES_H_
