#include "src/judge/unlike_draws.h"

#include <algorithm>

#include "src/experiment/module_names.h"
#include "src/experiment/parameter_roles.h"

namespace ttrace {

UnlikeDraws::UnlikeDraws(const Side* reference, const Side& candidate,
                         const std::vector<TensorFacts>& tensors) {
  if (reference == nullptr) return;
  const auto& ours = candidate.random_draws();
  const auto& theirs = reference->random_draws();
  const auto collect = [&](const auto& draws, const auto& others) {
    for (const auto& [place, drawn] : draws) {
      const auto other = others.find(place);
      if (other == others.end() || other->second != drawn) {
        places_.insert(place);
      }
    }
  };
  collect(ours, theirs);
  collect(theirs, ours);
  for (const TensorFacts& tensor : tensors) {
    const TensorId& id = tensor.id;
    if (!IsEdge(id.role) && id.role != Role::kOutput) continue;
    if (!places_.contains({id.iteration, id.fqn})) continue;
    const auto [it, is_new] = first_.try_emplace(id.iteration, tensor.order);
    if (!is_new) it->second = std::min(it->second, tensor.order);
  }
}

std::set<std::string> UnlikeDraws::modules() const {
  std::set<std::string> out;
  for (const auto& [iteration, module] : places_) out.insert(module);
  return out;
}

bool UnlikeDraws::Reach(const TensorFacts& tensor) const {
  const auto first = first_.find(tensor.id.iteration);
  if (first == first_.end() || tensor.order < first->second) return false;
  // The first value of the module that draws first: an input is from before.
  return tensor.order > first->second || tensor.id.role != Role::kInput;
}

bool UnlikeDraws::ReachIsolated(const TensorId& id) const {
  if (places_.empty()) return false;
  // What arrives at a module was computed by those around it.
  if (id.role == Role::kInput || id.role == Role::kGradOutput) {
    return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
      return place.first == id.iteration && place.second != id.fqn &&
             IsBelow(id.fqn, place.second);
    });
  }
  std::string module = id.fqn;
  if (IsParameterGradient(id.role)) module = ParentName(id.fqn);
  if (id.role == Role::kLoss) module = "";  // the model may make it itself
  return places_.contains({id.iteration, module});
}

}  // namespace ttrace
