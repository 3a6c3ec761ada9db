#include "src/localize/blame.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "src/experiment/module_names.h"
#include "src/measure/exact_values.h"

namespace ttrace {

bool IsParameterRole(Role role) {
  return role == Role::kGradLocal || role == Role::kGradReduced ||
         role == Role::kParam || role == Role::kParamUpdated ||
         role == Role::kOptimState;
}

std::string NameOrModel(const std::string& fqn) {
  return fqn.empty() ? "the model" : fqn;
}

void AddRanks(const std::vector<int>& ranks, Culprit* culprit) {
  std::set<int> all(culprit->ranks.begin(), culprit->ranks.end());
  all.insert(ranks.begin(), ranks.end());
  culprit->ranks.assign(all.begin(), all.end());
}

void AddShownBy(const std::vector<TensorId>& ids, Culprit* culprit) {
  const std::set<TensorId> known(culprit->shown_by.begin(),
                                 culprit->shown_by.end());
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(culprit->shown_by),
               [&](const TensorId& id) { return !known.contains(id); });
}

Cause CauseOf(Role role, const Blame& blame) {
  std::string place =
      IsParameterRole(role) ? "" : WithoutLayerNumbers(blame.fqn);
  // A step makes parameters and state at once.
  if (role == Role::kOptimState) role = Role::kParamUpdated;
  if (!blame.point.empty()) place += "|" + WithoutLayerNumbers(blame.point);
  return {role, blame.direction, blame.stage, std::move(place)};
}

namespace {

void AddName(const TensorJudgement& t, double headroom,
             const std::vector<int>& ranks, Culprit::Affected* affected) {
  const std::string name = WithoutLayerNumbers(t.id.fqn);
  for (Culprit::Affected::Name& known : affected->names) {
    if (WithoutLayerNumbers(known.first.fqn) != name) continue;
    ++known.count;
    return;
  }
  affected->names.push_back({t.id, 1, headroom, ranks});
}

}  // namespace

void Comparable::Add(const TensorId& id) {
  ++of_role_[id.role];
  if (IsAfterStep(id.role)) stepped_.insert(id.fqn);
}

int64_t Comparable::CountFor(Role role) const {
  if (IsAfterStep(role)) return static_cast<int64_t>(stepped_.size());
  const auto found = of_role_.find(role);
  return found == of_role_.end() ? 0 : found->second;
}

size_t CulpritList::Add(const TensorJudgement& t, const Blame& blame,
                        double headroom, const std::vector<int>& ranks,
                        int64_t of) {
  const auto [at, is_new] =
      known_.try_emplace(CauseOf(t.id.role, blame), culprits_.size());
  if (is_new) {
    Culprit culprit;
    culprit.fqn = blame.fqn;
    culprit.tensor = t.id;
    culprit.direction = blame.direction;
    culprit.stage = blame.stage;
    culprit.iteration = t.id.iteration;
    culprit.headroom = headroom;
    culprit.where = blame.where;
    culprit.affected.count = 0;
    culprit.affected.of = of;
    culprit.found_by = {found_by_};
    culprits_.push_back(std::move(culprit));
    stepped_.emplace_back();
  }
  Culprit& culprit = culprits_[at->second];
  AddRanks(ranks, &culprit);
  // A buffer is named by each tensor that it explains.
  if (!is_new && t.id == culprit.tensor) return at->second;
  culprit.shown_by.push_back(t.id);
  // Counted within the culprit's own iteration: a fault that repeats in the
  // next one is not more faults.
  if (t.id.iteration != culprit.iteration) return at->second;
  if (IsAfterStep(t.id.role) && !stepped_[at->second].insert(t.id.fqn).second) {
    return at->second;
  }
  ++culprit.affected.count;
  if (IsParameterRole(t.id.role)) {
    AddName(t, headroom, ranks, &culprit.affected);
  }
  auto& examples = culprit.affected.examples;
  if (examples.size() < 5 &&
      std::find(examples.begin(), examples.end(), t.id.fqn) == examples.end()) {
    examples.push_back(t.id.fqn);
  }
  return at->second;
}

}  // namespace ttrace
