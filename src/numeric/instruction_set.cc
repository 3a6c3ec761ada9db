#include "src/numeric/instruction_set.h"

#include <cstdint>
#include <cstdlib>

#include "src/numeric/fixed_vectors.h"

namespace ttrace {

std::string InstructionSet() { return InstructionSets().front(); }

std::vector<std::string> InstructionSets() {
  // Better ones have lower bits, and come first.
  std::vector<std::string> out;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    out.emplace_back(hwy::TargetName(target));
  }
  return out;
}

Status LimitInstructionSet(std::string_view name) {
  hwy::DisableTargets(0);
  if (name.empty()) return Done{};
  int64_t better = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name == hwy::TargetName(target)) {
      hwy::DisableTargets(better);
      return Done{};
    }
    better |= target;
  }
  std::string known;
  for (const std::string& set : InstructionSets()) {
    known += (known.empty() ? "" : ", ") + set;
  }
  return Error(ErrorCode::kInvalidArgument,
               "this machine has no instruction set '" + std::string(name) +
                   "', but " + known);
}

Status LimitInstructionSetByEnvironment() {
  const char* name = std::getenv(kInstructionSetVariable);
  if (name == nullptr) return Done{};
  const Status limited = LimitInstructionSet(name);
  if (limited.ok()) return limited;
  return limited.error().WithContext(kInstructionSetVariable);
}

}  // namespace ttrace
