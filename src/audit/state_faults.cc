#include "src/audit/state_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "src/audit/stated_fault.h"

namespace ttrace {
namespace {

// One state of parameters that one side alone changed, before one iteration.
struct OneSidedChange {
  int iteration = 0;
  std::string arg;
  bool in_candidate = false;
  auto operator<=>(const OneSidedChange&) const = default;
};

// Of whom, and how.
struct ChangedTensors {
  bool by_rounding = true;  // that one side alone changed them may be due to it
  bool by_step = false;     // it was seen to make another step
  std::vector<std::string> fqns;
  std::set<int> ranks;
  int64_t sampled = 0;
  int64_t differs = 0;
  std::optional<double> factor;
};

// A weight that the iteration's own forward and its step find differently; all
// else is what a step left and the next iteration finds.
bool IsWithinIteration(const std::string& arg) { return arg == "used"; }

// That of the step after which the change was made, or before which.
int StepOf(int iteration, const std::string& arg) {
  return IsWithinIteration(arg) ? iteration : iteration - 1;
}

std::string Words(const std::string& arg) {
  if (IsWithinIteration(arg)) return "the parameter itself";
  if (arg == "updated") return "the parameter itself";
  if (arg == "master") return "the master copy";
  if (arg == "step") return "the count of steps";
  return arg;
}

// All bits are compared by a digest, and some values beside: none of these may
// be among what was changed.
std::string ExtentWords(const ChangedTensors& extent) {
  if (extent.differs == 0) {
    return extent.sampled == 0
               ? "compared by digest"
               : fmt::format(
                     "compared by digest: what changed is none of the "
                     "{} values that were sampled",
                     extent.sampled);
  }
  std::string out = fmt::format("{} of {} sampled values differ",
                                extent.differs, extent.sampled);
  if (extent.factor) out += fmt::format(", times {:.6g}", *extent.factor);
  return out;
}

std::string Sentence(const OneSidedChange& change,
                     const ChangedTensors& extent) {
  const char* changed = change.in_candidate ? "candidate" : "reference";
  const char* kept = change.in_candidate ? "reference" : "candidate";
  const std::string other =
      IsWithinIteration(change.arg)
          ? fmt::format(
                "when the step of iteration {} begins, what its "
                "forward began with",
                change.iteration)
          : fmt::format("in iteration {}, what the step of iteration {} left",
                        change.iteration, change.iteration - 1);
  return fmt::format(
      "{} of {} parameter{} is not, {} in the {} ({}); nothing changed it in "
      "the {}{}",
      Words(change.arg), extent.fqns.size(), extent.fqns.size() == 1 ? "" : "s",
      other, changed, ExtentWords(extent), kept,
      extent.by_step ? fmt::format("; the {} calls step() again without a "
                                   "forward in between",
                                   changed)
                     : "");
}

Culprit Describe(const OneSidedChange& change, const ChangedTensors& extent) {
  const bool within = IsWithinIteration(change.arg);
  const bool weights =
      within || change.arg == "updated" || change.arg == "master";
  StatedFault fault;
  fault.tensor = {extent.fqns.front(),
                  weights ? Role::kParamUpdated : Role::kOptimState,
                  StepOf(change.iteration, change.arg),
                  0,
                  weights ? "" : change.arg,
                  Pass::kOptimizer};
  fault.ranks = extent.ranks;
  fault.fqns = extent.fqns;
  fault.of = static_cast<int64_t>(extent.fqns.size());
  fault.where =
      fmt::format("changed by something other than the optimizer's step, {} it",
                  within ? "before" : "after");
  fault.found_by = "states";
  fault.diagnosis = {BugClass::kChangedBetweenSteps, Sentence(change, extent)};
  if (extent.factor) fault.diagnosis.value = *extent.factor;
  return CulpritOf(fault);
}

class StateComparison {
 public:
  explicit StateComparison(const std::optional<IterationRange>& iterations)
      : iterations_(iterations) {}

  // What `side` changed and `other` did not.
  void Add(const StateChanges& side, const StateChanges& other,
           bool in_candidate) {
    for (const auto& [state, change] : side.changed) {
      const int step = StepOf(state.iteration, state.arg);
      if (iterations_ && !iterations_->contains(step)) continue;
      if (!other.LookedAt(state) || other.changed.contains(state)) continue;
      // A copy that follows its master.
      if (state.arg == "updated" &&
          side.changed.contains({state.iteration, "master", state.fqn})) {
        continue;
      }
      const OneSidedChange what{state.iteration, state.arg, in_candidate};
      const auto [it, is_new] = found_.try_emplace(what);
      ChangedTensors& extent = it->second;
      // Counts have no rounding.
      if (change.of_most() || state.arg == "step") extent.by_rounding = false;
      extent.factor =
          is_new ? change.factor : CommonFactor(extent.factor, change.factor);
      extent.by_step = side.stepped_again.contains(step);
      extent.fqns.push_back(state.fqn);
      extent.sampled += change.sampled;
      extent.differs += change.differs;
      if (in_candidate) {
        extent.ranks.insert(change.ranks.begin(), change.ranks.end());
      }
    }
  }

  StateFaults Finish() const {
    StateFaults out;
    // Said once of all iterations.
    std::set<std::tuple<std::string, bool, bool>> told;
    for (const auto& [change, extent] : found_) {
      const bool open = extent.by_rounding;
      if (!told.emplace(change.arg, change.in_candidate, open).second) continue;
      if (open) {
        out.open.push_back(fmt::format(
            "{} (first {})", Sentence(change, extent), extent.fqns.front()));
      } else {
        out.culprits.push_back(Describe(change, extent));
      }
    }
    return out;
  }

 private:
  std::optional<IterationRange> iterations_;
  std::map<OneSidedChange, ChangedTensors> found_;
};

void AddKept(const StateChanges& side, const StateChanges& other,
             std::set<std::pair<int, std::string>>* out) {
  for (const auto& [iteration, gradients] : side.gradients) {
    const auto theirs = other.gradients.find(iteration);
    if (theirs == other.gradients.end()) continue;
    for (const auto& [fqn, ranks] : gradients.ranks) {
      if (!theirs->second.ranks.contains(fqn)) out->emplace(iteration, fqn);
    }
  }
}

// The first iteration whose backward adds to what one side alone left there.
std::vector<Culprit> FindKeptGradients(
    const StateChanges& side, const StateChanges& other, bool in_candidate,
    const std::optional<IterationRange>& iterations) {
  for (const auto& [iteration, gradients] : side.gradients) {
    const auto theirs = other.gradients.find(iteration);
    if (theirs == other.gradients.end() ||
        (iterations && !iterations->contains(iteration))) {
      continue;
    }
    StatedFault fault;
    for (const auto& [fqn, ranks] : gradients.ranks) {
      if (theirs->second.ranks.contains(fqn)) continue;
      fault.fqns.push_back(fqn);
      if (in_candidate) fault.ranks.insert(ranks.begin(), ranks.end());
    }
    if (fault.fqns.empty()) continue;
    fault.tensor = {fault.fqns.front(), Role::kGradLocal, iteration, 0, "",
                    Pass::kBackward};
    fault.of = std::max<int64_t>(gradients.parameters,
                                 static_cast<int64_t>(fault.fqns.size()));
    fault.where = "seen before the iteration's own backward added to it";
    fault.found_by = "states";
    fault.diagnosis = {
        BugClass::kStaleValue,
        fmt::format("in the {}, the backward of iteration {} adds to gradients "
                    "of {} of {} parameters that are not empty: zero_grad() "
                    "was not called, or does not reach them; in the {} they "
                    "are",
                    in_candidate ? "candidate" : "reference", iteration,
                    fault.fqns.size(), fault.of,
                    in_candidate ? "reference" : "candidate")};
    return {CulpritOf(fault)};
  }
  return {};
}

}  // namespace

StateFaults FindStateFaults(const StateChanges& reference,
                            const StateChanges& candidate,
                            const std::optional<IterationRange>& iterations) {
  StateComparison comparison(iterations);
  comparison.Add(candidate, reference, true);
  comparison.Add(reference, candidate, false);
  StateFaults out = comparison.Finish();
  out.gradients = FindKeptGradients(candidate, reference, true, iterations);
  if (out.gradients.empty()) {
    out.gradients = FindKeptGradients(reference, candidate, false, iterations);
  }
  AddKept(candidate, reference, &out.kept);
  AddKept(reference, candidate, &out.kept);
  return out;
}

}  // namespace ttrace
