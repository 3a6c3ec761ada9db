#include "src/judge/unlike_draws.h"

#include <algorithm>
#include <tuple>

#include "src/experiment/module_names.h"
#include "src/experiment/parameter_roles.h"

namespace ttrace {
namespace {

bool Differs(const TensorFacts& tensor) {
  return std::any_of(
      tensor.legs.begin(), tensor.legs.end(), [](const LegFacts& leg) {
        return leg.usable && !leg.candidate.total.bitwise_equal();
      });
}

}  // namespace

UnlikeDraws::UnlikeDraws(const Side* reference, const Side& candidate,
                         const PackedFacts& tensors) {
  if (reference == nullptr) return;
  const auto& ours = candidate.facts().random_draws;
  const auto& theirs = reference->facts().random_draws;
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
  if (places_.empty()) return;  // facts are packed: each look unpacks all
  for (const TensorFacts& tensor : tensors) {
    const TensorId& id = tensor.id;
    if (id.role == Role::kOutput) called_.insert(id.fqn);
    if (!IsEdge(id.role) && id.role != Role::kOutput) continue;
    if (!places_.contains({id.iteration, id.fqn})) continue;
    first_.try_emplace(id.iteration, tensor.order);
  }
  std::set<std::tuple<int, std::string, Role, std::string>> left;
  for (const NotIsolated& note : candidate.not_isolated()) {
    left.emplace(note.iteration, note.fqn, note.role, note.arg);
  }
  for (const TensorFacts& tensor : tensors) {
    const TensorId& id = tensor.id;
    const bool is_input = id.role == Role::kInput;
    if (!is_input && id.role != Role::kGradOutput) continue;
    const bool stays = (is_input && tensor.exact) ||
                       left.contains({id.iteration, id.fqn, id.role, id.arg});
    if (stays && Affects(tensor) && Differs(tensor)) {
      (is_input ? inputs_left_ : gradients_left_)
          .insert({id.iteration, id.fqn});
    }
  }
}

std::set<std::string> UnlikeDraws::modules() const {
  std::set<std::string> out;
  for (const auto& [iteration, module] : places_) out.insert(module);
  return out;
}

bool UnlikeDraws::Affects(const TensorFacts& tensor) const {
  const auto first = first_.find(tensor.id.iteration);
  if (first == first_.end() || tensor.order < first->second) return false;
  // The first value of the module that draws first: an input is from before.
  return tensor.order > first->second || tensor.id.role != Role::kInput;
}

bool UnlikeDraws::AffectsIsolated(const TensorId& id) const {
  std::string module = id.fqn;
  if (IsParameterGradient(id.role)) module = ParentName(id.fqn);
  // Inputs are replaced, outputs are not: what arrives at a module is made of
  // the outputs of others in the module around it.
  if (IsEdge(id.role)) module = CallerOf(id.fqn);
  if (id.role == Role::kLoss) module = "";
  const auto any_in_module = [&](const std::set<Place>& places) {
    return std::any_of(places.begin(), places.end(), [&](const Place& place) {
      return place.first == id.iteration &&
             (place.second == module || IsBelow(place.second, module));
    });
  };
  return any_in_module(places_) || any_in_module(inputs_left_) ||
         (IsGradient(id.role) && any_in_module(gradients_left_));
}

std::string UnlikeDraws::CallerOf(const std::string& module) const {
  std::string caller = module;
  do {
    caller = ParentName(caller);
  } while (!caller.empty() && !called_.contains(caller));
  return caller;
}

}  // namespace ttrace
