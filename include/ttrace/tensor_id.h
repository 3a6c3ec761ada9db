// TensorId: what a recorded tensor *is*, the same in every topology.
//
// A micro-batch, a rank and a shard are not part of it: they say where in the
// logical tensor a piece lies (layout.h).
//
// Thread safety: plain values.

#ifndef TTRACE_TENSOR_ID_H_
#define TTRACE_TENSOR_ID_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

enum class Role : uint8_t {
  kData,          // an item of the user's data iterator
  kParam,         // as the first captured forward found it
  kBuffer,        // a module's buffer
  kInput,         // of a module, arg = parameter name of its forward
  kOutput,        // of a module, arg = output index
  kLoss,          // arg = "sum" | "tokens" | "value"
  kGradOutput,    // gradient arriving at an output
  kGradInput,     // gradient leaving through an input
  kGradLocal,     // parameter gradient before any reduction, summed over calls
  kGradReduced,   // at the entry of the optimizer's step, before clipping
  kGradNorm,      // as the optimizer reported it
  kParamUpdated,  // after the step, as the next forward uses it
  kOptimState,    // arg = "master", "exp_avg", ...
};
inline constexpr int kRoleCount = 13;

// What the code between modules delivers to one: recorded before it is replaced
// in an isolated leg.
constexpr bool IsEdge(Role role) {
  return role == Role::kInput || role == Role::kGradOutput;
}

enum class Pass : uint8_t {
  kForward,
  kRecompute,
  kBackward,
  kOptimizer,
};
inline constexpr int kPassCount = 4;

// Names as in the index: "grad_input", "recompute", ...
std::string_view ToString(Role role);
std::string_view ToString(Pass pass);
std::optional<Role> ParseRole(std::string_view name);
std::optional<Pass> ParsePass(std::string_view name);

struct TensorId {
  std::string fqn;  // canonical, framework-free; "" is the model's root
  Role role = Role::kOutput;
  int iteration = 0;
  int call = 0;  // k-th use of the module within one forward
  std::string arg;
  Pass pass = Pass::kForward;

  auto operator<=>(const TensorId&) const = default;
  bool operator==(const TensorId&) const = default;
};

// "decoder.layers.0.mlp grad_input hidden_states it 1 call 0 backward"
// What the training loop hands to the model.
inline bool IsFed(const TensorId& id) {
  return id.role == Role::kData || (id.role == Role::kInput && id.fqn.empty());
}

std::string ToString(const TensorId& id);

}  // namespace ttrace

#endif  // TTRACE_TENSOR_ID_H_
