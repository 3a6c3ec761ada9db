// The judged tensors of one iteration, by the module or parameter they belong
// to. Built from names alone, so it needs no framework.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_LOCALIZE_MODULE_TREE_H_
#define TTRACE_SRC_LOCALIZE_MODULE_TREE_H_

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/experiment/fused_modules.h"
#include "src/judge/judgement.h"

namespace ttrace {

inline constexpr std::initializer_list<Role> kForwardRoles = {Role::kInput,
                                                              Role::kOutput};
inline constexpr std::initializer_list<Role> kGradientRoles = {
    Role::kGradOutput, Role::kGradInput};

class ModuleTree {
 public:
  // Says whether a tensor counts as out of bounds.
  using Predicate = bool (*)(const TensorJudgement&);

  // `tensors`: the judgements of one iteration; must outlive the tree. A part
  // and the module that does it are one piece of code: both have what it is
  // given, and what it makes.
  ModuleTree(
      const std::vector<const TensorJudgement*>& tensors,
      const FusedModules& fused,
      Predicate out = [](const TensorJudgement& t) { return t.diverged(); });

  // Judgements of exactly this name and role.
  const std::vector<const TensorJudgement*>& Of(std::string_view fqn,
                                                Role role) const;
  // Any tensor out of bounds with one of `roles` at `fqn`, below it, or both.
  bool AnyDiverged(std::string_view fqn, std::initializer_list<Role> roles,
                   bool below) const;
  bool AnyDivergedBelow(std::string_view fqn,
                        std::initializer_list<Role> roles) const;

  // The module whose code does what `fqn` names: another for a part of one.
  std::string CodeOf(const std::string& fqn) const;

  // The nearest name above `fqn` that is a recorded module.
  std::string Container(std::string_view fqn) const;

 private:
  void Share(const std::string& from, const std::string& with,
             std::initializer_list<Role> roles);

  Predicate out_;
  std::map<std::string, std::string> within_;
  std::map<std::string, std::map<Role, std::vector<const TensorJudgement*>>,
           std::less<>>
      by_name_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_MODULE_TREE_H_
