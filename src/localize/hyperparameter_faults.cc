#include "src/localize/hyperparameter_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "src/localize/stated_fault.h"

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
    NoteClippingOfOne(reference, candidate);
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
    return out;
  }

 private:
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
        "H",
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
