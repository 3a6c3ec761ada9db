#include "src/localize/module_tree.h"

#include <algorithm>

#include "src/experiment/module_names.h"

namespace ttrace {

ModuleTree::ModuleTree(const std::vector<const TensorJudgement*>& tensors,
                       const FusedModules& fused, Predicate out)
    : out_(out), within_(fused.within) {
  for (const TensorJudgement* t : tensors) {
    by_name_[t->id.fqn][t->id.role].push_back(t);
  }
  for (const auto& [part, module] : fused.within) {
    if (part == module) continue;
    Share(part, module, {Role::kInput, Role::kGradInput});
    Share(module, part, {Role::kOutput, Role::kGradOutput});
  }
}

void ModuleTree::Share(const std::string& from, const std::string& with,
                       std::initializer_list<Role> roles) {
  for (const Role role : roles) {
    // By value: the other name may be new to the map.
    const std::vector<const TensorJudgement*> shared = Of(from, role);
    if (shared.empty()) continue;
    auto& tensors = by_name_[with][role];
    tensors.insert(tensors.end(), shared.begin(), shared.end());
  }
}

const std::vector<const TensorJudgement*>& ModuleTree::Of(std::string_view fqn,
                                                          Role role) const {
  static const std::vector<const TensorJudgement*> kNone;
  const auto name = by_name_.find(fqn);
  if (name == by_name_.end()) return kNone;
  const auto found = name->second.find(role);
  return found == name->second.end() ? kNone : found->second;
}

bool ModuleTree::AnyDiverged(std::string_view fqn,
                             std::initializer_list<Role> roles,
                             bool below) const {
  for (const Role role : roles) {
    const auto& tensors = Of(fqn, role);
    if (std::any_of(tensors.begin(), tensors.end(),
                    [this](const auto* t) { return out_(*t); })) {
      return true;
    }
  }
  return below && AnyDivergedBelow(fqn, roles);
}

bool ModuleTree::AnyDivergedBelow(std::string_view fqn,
                                  std::initializer_list<Role> roles) const {
  // Names below "a.b" are those from "a.b." on, as long as they have that
  // prefix: '.' sorts before letters and digits but not before everything, so
  // the exact name is skipped rather than assumed to come first.
  const std::string prefix = fqn.empty() ? "" : std::string(fqn) + ".";
  for (auto it = by_name_.lower_bound(prefix);
       it != by_name_.end() && it->first.starts_with(prefix); ++it) {
    if (it->first.empty()) continue;
    for (const Role role : roles) {
      const auto found = it->second.find(role);
      if (found == it->second.end()) continue;
      for (const TensorJudgement* t : found->second) {
        if (out_(*t)) return true;
      }
    }
  }
  return false;
}

std::string ModuleTree::CodeOf(const std::string& fqn) const {
  const auto found = within_.find(fqn);
  return found == within_.end() ? fqn : found->second;
}

std::string ModuleTree::Container(std::string_view fqn) const {
  std::string name = ParentName(fqn);
  while (!name.empty()) {
    const auto found = by_name_.find(name);
    if (found != by_name_.end() && (found->second.contains(Role::kInput) ||
                                    found->second.contains(Role::kOutput))) {
      return name;
    }
    name = ParentName(name);
  }
  return name;
}

}  // namespace ttrace
