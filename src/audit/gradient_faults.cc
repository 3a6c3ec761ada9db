#include "src/audit/gradient_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "src/audit/stated_fault.h"
#include "src/base/count_words.h"
#include "src/experiment/module_names.h"

namespace ttrace {
namespace {

using ParameterAt = std::pair<int, std::string>;  // iteration, fqn

// Parameters with a gradient that is not zero, on some rank.
std::set<ParameterAt> NotZero(const StepGradients& run) {
  std::set<ParameterAt> out;
  for (const auto& [at, norm] : *run.norms) {
    const auto& [rank, iteration, fqn] = at;
    if (norm.norm > 0) out.emplace(iteration, fqn);
  }
  return out;
}

// What `side` has no gradient of, and `other` has.
std::vector<Culprit> FindIn(const StepGradients& side,
                            const StepGradients& other,
                            const ModulesThatRan& ran, bool in_candidate,
                            const std::optional<IterationRange>& iterations) {
  const std::set<ParameterAt> theirs = NotZero(other);
  const std::set<ParameterAt> own = NotZero(side);
  std::optional<int> first;
  StatedFault fault;
  for (const auto& [at, ranks] : *side.absent) {
    const auto& [iteration, fqn] = at;
    if (first && *first != iteration) break;
    if ((iterations && !iterations->contains(iteration)) ||
        !theirs.contains(at) || other.absent->contains(at) ||
        own.contains(at) || !ran.contains({iteration, ParentName(fqn)})) {
      continue;
    }
    first = iteration;
    fault.fqns.push_back(fqn);
    if (in_candidate) fault.ranks.insert(ranks.begin(), ranks.end());
  }
  if (!first) return {};
  fault.tensor = {fault.fqns.front(), Role::kGradReduced, *first, 0, "",
                  Pass::kBackward};
  fault.of = static_cast<int64_t>(
      std::count_if(theirs.begin(), theirs.end(),
                    [&](const ParameterAt& at) { return at.first == *first; }));
  fault.where = "seen when the step began";
  fault.found_by = "states";
  fault.diagnosis = {
      BugClass::kMissingOrZero,
      fmt::format("in the {}, the step of iteration {} finds no gradient "
                  "(None) of {}, whose modules ran; in the {} it is not zero: "
                  "frozen, detached, or not used",
                  in_candidate ? "candidate" : "reference", *first,
                  Counted(static_cast<int64_t>(fault.fqns.size()), "parameter"),
                  in_candidate ? "reference" : "candidate"),
      static_cast<double>(fault.fqns.size())};
  return {CulpritOf(fault)};
}

}  // namespace

std::vector<Culprit> FindAbsentGradients(
    const StepGradients& reference, const StepGradients& candidate,
    const ModulesThatRan& ran,
    const std::optional<IterationRange>& iterations) {
  std::vector<Culprit> out =
      FindIn(candidate, reference, ran, true, iterations);
  if (out.empty()) out = FindIn(reference, candidate, ran, false, iterations);
  return out;
}

}  // namespace ttrace
