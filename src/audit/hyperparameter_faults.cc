#include "src/audit/hyperparameter_faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "src/audit/stated_fault.h"
#include "src/step/step_rule.h"

namespace ttrace {
namespace {

using Values = std::map<std::string, ValuesOfRanks>;

// One hyperparameter that differs in one way, in one iteration.
struct Difference {
  std::string name;
  Hyperparameter reference;
  Hyperparameter candidate;
  auto operator<=>(const Difference&) const = default;
};

// Of whom, and on which ranks of the candidate.
struct Extent {
  std::vector<std::string> fqns;
  std::set<int> ranks;
};

// Whether `name` is `value` on all ranks.
bool Is(const Values& values, const std::string& name,
        const Hyperparameter& value) {
  const auto found = values.find(name);
  if (found == values.end()) return false;
  return std::all_of(found->second.begin(), found->second.end(),
                     [&](const auto& entry) {
                       return SameHyperparameter(entry.first, value);
                     });
}

const Hyperparameter& Zero() {
  static const auto& zero = *new Hyperparameter{{0.0}, ""};
  return zero;
}

// A setting of something that neither run does: how weight decay of 0 is
// applied, how momentum of 0 is damped.
bool WithoutEffect(const std::string& name, const Values& a, const Values& b) {
  const auto both_zero = [&](const std::string& factor) {
    return Is(a, factor, Zero()) && Is(b, factor, Zero());
  };
  if (name == kClipped || name == kChangedEarly || name == kIncomplete) {
    return true;
  }
  if (name == "decoupled_weight_decay") return both_zero("weight_decay");
  if (name == "dampening" || name == "nesterov") return both_zero("momentum");
  if (name == "clip_grad_norm_type") {
    const Hyperparameter none{{}, "none"};
    return Is(a, "clip_grad", none) && Is(b, "clip_grad", none);
  }
  return false;
}

bool Holds(const ValuesOfRanks& values, const Hyperparameter& wanted) {
  return std::any_of(values.begin(), values.end(), [&](const auto& entry) {
    return SameHyperparameter(entry.first, wanted);
  });
}

// Those that noted a step.
std::set<int> RanksOfStep(const Values& values) {
  std::set<int> out;
  const auto kinds = values.find("kind");
  if (kinds == values.end()) return out;
  for (const auto& [kind, ranks] : kinds->second) {
    out.insert(ranks.begin(), ranks.end());
  }
  return out;
}

// Whether all is known of a step, and nothing in it or before it clips.
bool TakesGradientsAsTheyAre(const Values& values) {
  const std::set<int> ranks = RanksOfStep(values);
  return !ranks.empty() && !values.contains(kChangedEarly) &&
         !values.contains(kIncomplete) &&
         std::all_of(ranks.begin(), ranks.end(), [&](const int rank) {
           const auto rule = ReadStepRule(values, rank).rule;
           return rule && !rule->clip_norm && !rule->clip_value;
         });
}

class Comparison {
 public:
  // `against`: who has the values that are right, in words.
  Comparison(const std::optional<IterationRange>& iterations,
             std::string against)
      : iterations_(iterations), against_(std::move(against)) {}

  bool Asked(int iteration) const {
    return !iterations_ || iterations_->contains(iteration);
  }

  // Of one parameter in one iteration.
  void Add(const StepOfParameter& step, const Values& reference,
           const Values& candidate) {
    ++compared_[step.iteration];
    if (AddValue(step, "kind", reference, candidate)) return;
    for (const auto& [name, values] : candidate) {
      if (name != "kind" && !WithoutEffect(name, reference, candidate)) {
        AddValue(step, name, reference, candidate);
      }
    }
    NoteUnlikeGradients(step.iteration, reference, candidate);
    if (reference.contains(kIncomplete) != candidate.contains(kIncomplete)) {
      incomplete_.insert(step.iteration);
    }
    if (!AddOneSidedClipping(step, reference, candidate)) {
      NoteClippingOfOne(reference, candidate);
    }
    if (Is(reference, "lr", Zero()) && Is(candidate, "lr", Zero())) {
      ++unmoved_[step.iteration];
    }
  }

  HyperparameterFaults Finish() const {
    HyperparameterFaults out;
    // What differs in one iteration differs in the next: said once.
    std::map<std::string, std::set<std::string>> told;  // name -> fqns
    for (const auto& [iteration, differences] : differences_) {
      const std::map<std::string, std::set<std::string>> before = told;
      for (const auto& [difference, extent] : differences) {
        const auto known = before.find(difference.name);
        if (known != before.end() &&
            std::all_of(extent.fqns.begin(), extent.fqns.end(),
                        [&](const std::string& fqn) {
                          return known->second.contains(fqn);
                        })) {
          continue;
        }
        told[difference.name].insert(extent.fqns.begin(), extent.fqns.end());
        out.culprits.push_back(Describe(iteration, difference, extent));
      }
    }
    for (const auto& [iteration, count] : unmoved_) {
      out.notes.push_back(fmt::format(
          "the step of iteration {} moves nothing: the learning rate is 0 for "
          "{} of {} parameters, on both sides",
          iteration, count, compared_.at(iteration)));
    }
    for (const std::string& text : one_sided_) out.notes.push_back(text);
    out.unlike_gradients = unlike_;
    out.incomplete_gradients = incomplete_;
    return out;
  }

 private:
  void NoteUnlikeGradients(int iteration, const Values& reference,
                           const Values& candidate) {
    const bool in_reference = reference.contains(kChangedEarly);
    if (in_reference == candidate.contains(kChangedEarly)) return;
    const Values& changed = in_reference ? reference : candidate;
    const Values& other = in_reference ? candidate : reference;
    if (changed.contains("clip_grad")) return;  // the change is another one
    if (Is(other, kClipped, {{}, "True"})) unlike_.insert(iteration);
  }

  // One side's gradients were clipped, and all is known of the other's step,
  // which takes gradients as they are: those that are compared.
  bool AddOneSidedClipping(const StepOfParameter& step, const Values& reference,
                           const Values& candidate) {
    const bool in_reference = reference.contains("clip_grad");
    if (in_reference == candidate.contains("clip_grad")) return false;
    const Values& clips = in_reference ? reference : candidate;
    const Values& other = in_reference ? candidate : reference;
    if (!Is(clips, kClipped, {{}, "True"}) || !TakesGradientsAsTheyAre(other)) {
      return false;
    }
    const Hyperparameter limit = clips.at("clip_grad").begin()->first;
    const Hyperparameter none{{}, "none"};
    Extent& extent = differences_[step.iteration][{
        "clip_grad", in_reference ? limit : none, in_reference ? none : limit}];
    extent.fqns.push_back(step.fqn);
    const std::set<int> ranks = RanksOfStep(candidate);
    extent.ranks.insert(ranks.begin(), ranks.end());
    return true;
  }

  // Clipping by a function of the loop's own is not seen: no fault.
  void NoteClippingOfOne(const Values& reference, const Values& candidate) {
    for (const char* name : {"clip_grad", "clip_grad_value"}) {
      const bool wanted = reference.contains(name);
      if (wanted == candidate.contains(name)) continue;
      one_sided_.insert(
          fmt::format("{} was seen on the {}'s side only and is not compared",
                      name, wanted ? "reference" : "candidate"));
    }
  }

  bool AddValue(const StepOfParameter& step, const std::string& name,
                const Values& reference, const Values& candidate) {
    const auto wanted = reference.find(name);
    const auto found = candidate.find(name);
    if (wanted == reference.end() || found == candidate.end()) return false;
    bool differs = false;
    for (const auto& [value, ranks] : found->second) {
      if (Holds(wanted->second, value)) continue;
      Extent& extent = differences_[step.iteration][{
          name, wanted->second.begin()->first, value}];
      extent.fqns.push_back(step.fqn);
      extent.ranks.insert(ranks.begin(), ranks.end());
      differs = true;
    }
    return differs;
  }

  Culprit Describe(int iteration, const Difference& difference,
                   const Extent& extent) const {
    StatedFault fault;
    fault.tensor = {extent.fqns.front(), Role::kParamUpdated, iteration, 0, "",
                    Pass::kOptimizer};
    fault.ranks = extent.ranks;
    fault.fqns = extent.fqns;
    fault.of = compared_.at(iteration);
    fault.where = "read from the optimizer at the entry of its step";
    fault.found_by = "settings";
    fault.diagnosis = {
        BugClass::kOtherHyperparameters,
        fmt::format(
            "{} is {} where {} {}, for {} of {} parameters (iteration {})",
            difference.name == "kind" ? "the optimizer" : difference.name,
            difference.candidate.Text(), against_, difference.reference.Text(),
            fault.fqns.size(), fault.of, iteration)};
    if (difference.candidate.numbers.size() == 1 &&
        difference.reference.numbers.size() == 1 &&
        difference.reference.numbers.front() != 0) {
      fault.diagnosis.value = difference.candidate.numbers.front() /
                              difference.reference.numbers.front();
    }
    return CulpritOf(fault);
  }

  std::optional<IterationRange> iterations_;
  std::string against_;
  std::map<int, std::map<Difference, Extent>> differences_;
  std::map<int, int64_t> compared_;  // parameters
  std::map<int, int64_t> unmoved_;
  std::set<std::string> one_sided_;
  std::set<int> unlike_;
  std::set<int> incomplete_;
};

// One side says another value on one rank than on another.
void AddContradictions(const Hyperparameters& side, const char* which,
                       const Comparison& asked, HyperparameterFaults* out) {
  std::map<std::pair<int, std::string>, std::pair<std::string, int64_t>> found;
  for (const auto& [step, values] : side.steps) {
    if (!asked.Asked(step.iteration)) continue;
    for (const auto& [name, of_ranks] : values) {
      const Hyperparameter& first = of_ranks.begin()->first;
      const auto other = std::find_if(
          of_ranks.begin(), of_ranks.end(), [&](const auto& entry) {
            return !SameHyperparameter(entry.first, first);
          });
      if (other == of_ranks.end()) continue;
      auto& [text, count] = found[{step.iteration, name}];
      ++count;
      if (!text.empty()) continue;
      text = fmt::format("{} of {} is {} on rank {} and {} on rank {}", name,
                         step.fqn, first.Text(),
                         fmt::join(of_ranks.begin()->second, ", "),
                         other->first.Text(), fmt::join(other->second, ", "));
    }
  }
  for (const auto& [where, what] : found) {
    out->notes.push_back(
        fmt::format("{}: ranks disagree in iteration {}: {} ({} parameters)",
                    which, where.first, what.first, what.second));
  }
}

// The candidate alone: ranks that hold one parameter must update it alike. The
// value of most ranks stands for the reference's.
Values MostCommon(const Values& values) {
  Values out;
  for (const auto& [name, of_ranks] : values) {
    const auto most = std::max_element(
        of_ranks.begin(), of_ranks.end(), [](const auto& a, const auto& b) {
          return a.second.size() < b.second.size();
        });
    out[name].insert(*most);
  }
  return out;
}

}  // namespace

HyperparameterFaults FindHyperparameterFaults(
    const Hyperparameters* reference, const Hyperparameters& candidate,
    const std::optional<IterationRange>& iterations) {
  Comparison comparison(iterations, reference == nullptr ? "most ranks have"
                                                         : "the reference has");
  int64_t compared = 0;
  for (const auto& [step, values] : candidate.steps) {
    if (!comparison.Asked(step.iteration)) continue;
    if (reference == nullptr) {
      comparison.Add(step, MostCommon(values), values);
      continue;
    }
    const auto found = reference->steps.find(step);
    if (found == reference->steps.end()) continue;
    comparison.Add(step, found->second, values);
    ++compared;
  }
  HyperparameterFaults out = comparison.Finish();
  if (reference != nullptr) {
    AddContradictions(*reference, "the reference", comparison, &out);
    AddContradictions(candidate, "the candidate", comparison, &out);
    if (compared == 0 && reference->empty() != candidate.empty()) {
      out.notes.push_back(fmt::format(
          "only the {} says what its optimizer's steps compute with: learning "
          "rate and the like were not compared",
          candidate.empty() ? "reference" : "candidate"));
    }
  }
  const int64_t malformed =
      candidate.malformed + (reference == nullptr ? 0 : reference->malformed);
  if (malformed > 0) {
    out.notes.push_back(fmt::format(
        "{} notes about the optimizer cannot be read and were ignored",
        malformed));
  }
  return out;
}

}  // namespace ttrace
