#include "src/judge/unlike_draws.h"

#include <algorithm>

#include "src/experiment/module_names.h"
#include "src/experiment/parameter_roles.h"

namespace ttrace {
namespace {

bool DiffersEndToEnd(const TensorFacts& tensor) {
  return std::any_of(
      tensor.legs.begin(), tensor.legs.end(), [](const LegFacts& leg) {
        return leg.usable && !leg.candidate.total.bitwise_equal();
      });
}

}  // namespace

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
    if (id.role == Role::kOutput) called_.insert(id.fqn);
    if (!IsEdge(id.role) && id.role != Role::kOutput) continue;
    if (!places_.contains({id.iteration, id.fqn})) continue;
    first_.try_emplace(id.iteration, tensor.order);
  }
  for (const TensorFacts& tensor : tensors) {
    const TensorId& id = tensor.id;
    if (tensor.exact && id.role == Role::kInput && Reach(tensor) &&
        DiffersEndToEnd(tensor)) {
      handed_on_.insert({id.iteration, id.fqn});
    }
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
  std::string module = id.fqn;
  if (IsParameterGradient(id.role)) module = ParentName(id.fqn);
  // Inputs are replaced, outputs are not: what arrives at a module is made of
  // the outputs of others in the module around it.
  if (IsEdge(id.role)) module = CallerOf(id.fqn);
  if (id.role == Role::kLoss) module = "";
  const auto in_module = [&](const Place& place) {
    return place.first == id.iteration &&
           (place.second == module || IsBelow(place.second, module));
  };
  return std::any_of(places_.begin(), places_.end(), in_module) ||
         std::any_of(handed_on_.begin(), handed_on_.end(), in_module);
}

std::string UnlikeDraws::CallerOf(const std::string& module) const {
  std::string caller = module;
  do {
    caller = ParentName(caller);
  } while (!caller.empty() && !called_.contains(caller));
  return caller;
}

}  // namespace ttrace
