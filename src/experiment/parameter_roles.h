// Kinds of roles.
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

// Of anything: what the backward pass makes.
constexpr bool IsGradient(Role role) {
  return role == Role::kGradOutput || role == Role::kGradInput ||
         IsParameterGradient(role);
}

// What goes in and out of a module, both ways.
constexpr bool IsActivation(Role role) {
  return role == Role::kInput || role == Role::kOutput ||
         role == Role::kGradInput || role == Role::kGradOutput;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_PARAMETER_ROLES_H_
