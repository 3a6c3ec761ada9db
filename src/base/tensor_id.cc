#include "ttrace/tensor_id.h"

#include <array>
#include <cstddef>

namespace ttrace {
namespace {

// In the order of the enumerators. These words are part of the trace format.
constexpr std::array<std::string_view, kRoleCount> kRoleNames = {
    "data",      "param",         "buffer",     "input",      "output",
    "loss",      "grad_output",   "grad_input", "grad_local", "grad_reduced",
    "grad_norm", "param_updated", "optim_state"};
constexpr std::array<std::string_view, kPassCount> kPassNames = {
    "forward", "recompute", "backward", "optimizer"};

template <typename Enum, size_t kCount>
std::string_view Name(const std::array<std::string_view, kCount>& names,
                      Enum value) {
  const auto i = static_cast<size_t>(value);
  return i < kCount ? names[i] : "invalid";
}

template <typename Enum, size_t kCount>
std::optional<Enum> Find(const std::array<std::string_view, kCount>& names,
                         std::string_view name) {
  for (size_t i = 0; i < kCount; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view ToString(Role role) { return Name(kRoleNames, role); }

std::string_view ToString(Pass pass) { return Name(kPassNames, pass); }

std::optional<Role> ParseRole(std::string_view name) {
  return Find<Role>(kRoleNames, name);
}

std::optional<Pass> ParsePass(std::string_view name) {
  return Find<Pass>(kPassNames, name);
}

std::string ToString(const TensorId& id) {
  std::string text = id.fqn.empty() ? "(root)" : id.fqn;
  text.append(" ").append(ToString(id.role));
  if (!id.arg.empty()) text.append(" ").append(id.arg);
  text.append(" it ").append(std::to_string(id.iteration));
  text.append(" call ").append(std::to_string(id.call));
  text.append(" ").append(ToString(id.pass));
  return text;
}

}  // namespace ttrace
