#include "src/check/explain_coverage.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "src/experiment/module_names.h"
#include "src/judge/reason_words.h"

namespace ttrace {
namespace {

// Why `side` has no such tensor, or nothing of its module or of one around it.
Reason WhyAbsent(const Side& side, const TensorId& id) {
  const auto& absent = side.facts().fused_modules.absent;
  const auto part = absent.find({id.fqn, id.role});
  if (part != absent.end()) {
    return Because(ReasonKind::kNotMaterialised, part->second);
  }
  const std::string& fqn = id.fqn;
  for (std::string name = fqn;; name = ParentName(name)) {
    const auto fused = side.facts().not_materialised.find(name);
    if (fused != side.facts().not_materialised.end() && !name.empty()) {
      return Because(ReasonKind::kNotMaterialised, fused->second);
    }
    const auto unseen = side.facts().not_observed.find(name);
    if (unseen != side.facts().not_observed.end()) {
      return Because(ReasonKind::kNotObserved, unseen->second.reason);
    }
    if (name.empty()) return {};
  }
}

// An absent interior is acceptable only inside a module that both sides have
// and that was compared: then what comes out of it speaks for it.
bool ContainerCompared(const std::set<std::string>& compared_modules,
                       const std::string& fqn) {
  for (std::string name = ParentName(fqn);; name = ParentName(name)) {
    if (compared_modules.contains(name)) return true;
    if (name.empty()) return false;
  }
}

// Names of one side: modules that were seen to compute, and parameters.
struct Names {
  std::set<std::string> modules;
  std::set<std::string> parameters;
};

Names NamesOf(const Side& side) {
  Names out;
  for (const auto& [id, pieces] : side.real()) {
    if (id.role == Role::kOutput) out.modules.insert(id.fqn);
    if (id.role == Role::kParam || id.role == Role::kGradReduced ||
        id.role == Role::kParamUpdated) {
      out.parameters.insert(id.fqn);
    }
  }
  return out;
}

bool AnyBelow(const std::set<std::string>& names, const std::string& fqn) {
  const auto first = names.lower_bound(fqn + ".");
  return first != names.end() && IsBelow(*first, fqn);
}

// One implementation of a module may show its inside (a softmax, a dropout)
// and another compute it in one piece. That is an implementation's choice only
// where the inside has no parameters of its own and the module as a whole was
// compared; otherwise missing modules stay unexplained.
bool InsideOfOnePiece(const Names& other, const Names& own,
                      const std::set<std::string>& compared_modules,
                      const std::string& fqn) {
  const std::string container = ParentName(fqn);
  return !container.empty() && compared_modules.contains(container) &&
         !AnyBelow(other.modules, container) &&
         !AnyBelow(other.parameters, container) &&
         !AnyBelow(own.parameters, container);
}

// Names of the state that a run's optimizers leave behind a step.
std::set<std::string> StatesKept(const Side& side,
                                 const std::vector<TensorJudgement>& tensors) {
  std::set<std::string> out;
  for (const TensorJudgement& t : tensors) {
    if (t.id.role == Role::kOptimState && t.id.pass == Pass::kOptimizer &&
        !out.contains(t.id.arg) && side.Find(kReal, t.id) != nullptr) {
      out.insert(t.id.arg);
    }
  }
  return out;
}

// Whether a run that has no such state should: its optimizers keep it of other
// parameters, and this one has a gradient. An optimizer that was not given a
// parameter steps it nowhere.
bool ShouldBeKept(const Side& lacking, const std::set<std::string>& kept,
                  const TensorId& state) {
  if (state.pass != Pass::kOptimizer || state.arg == "master" ||
      !kept.contains(state.arg)) {
    return false;
  }
  TensorId gradient = state;
  gradient.role = Role::kGradReduced;
  gradient.arg.clear();
  gradient.pass = Pass::kBackward;
  return lacking.Find(kReal, gradient) != nullptr;
}

}  // namespace

Coverage ExplainCoverage(const Side* reference, const Side& candidate,
                         const std::set<TensorId>& listed,
                         std::vector<TensorJudgement>* tensors) {
  Coverage out;
  std::set<std::string> compared_modules;
  for (const TensorJudgement& t : *tensors) {
    if (t.id.role == Role::kOutput && t.verdict != TensorVerdict::kUnmatched) {
      compared_modules.insert(t.id.fqn);
    }
  }
  const std::set<int> iterations = candidate.Iterations();
  const bool selected =
      !candidate.facts().selection.empty() ||
      (reference != nullptr && !reference->facts().selection.empty());
  const std::set<int> candidate_iterations = candidate.RecordedIterations();
  const std::set<int> reference_iterations =
      reference == nullptr ? std::set<int>() : reference->RecordedIterations();
  const Names candidate_names = NamesOf(candidate);
  const Names reference_names =
      reference == nullptr ? Names{} : NamesOf(*reference);
  const std::set<std::string> candidate_states =
      StatesKept(candidate, *tensors);
  const std::set<std::string> reference_states =
      reference == nullptr ? std::set<std::string>()
                           : StatesKept(*reference, *tensors);
  for (TensorJudgement& t : *tensors) {
    if (t.verdict != TensorVerdict::kUnmatched) {
      t.excused ? ++out.excused[ReasonWords(t.reason)] : ++out.compared;
      continue;
    }
    const bool in_reference = reference != nullptr &&
                              reference->FindSameValue(kReal, t.id) != nullptr;
    const bool in_candidate = candidate.Find(kReal, t.id) != nullptr;
    Reason why;
    if (reference != nullptr && in_reference != in_candidate) {
      const Side& lacking = in_reference ? candidate : *reference;
      why = WhyAbsent(lacking, t.id);
      if (!why.none() && !ContainerCompared(compared_modules, t.id.fqn)) {
        t.reason = std::exchange(why, {});  // known, and no excuse
      }
      if (why.none() &&
          InsideOfOnePiece(in_reference ? candidate_names : reference_names,
                           in_reference ? reference_names : candidate_names,
                           compared_modules, t.id.fqn)) {
        why = Because(ReasonKind::kInsideOnePiece,
                      in_reference ? "candidate" : "reference");
      }
      const auto unrecorded = lacking.facts().not_recorded.find(
          {t.id.fqn, std::string(ToString(t.id.role))});
      if (unrecorded != lacking.facts().not_recorded.end()) {
        why = Because(ReasonKind::kNotObserved, unrecorded->second);
      }
      if (t.id.role == Role::kParamUpdated && !iterations.empty() &&
          t.id.iteration >= *iterations.rbegin()) {
        why = Because(ReasonKind::kOneMoreStep);
      }
      // One optimizer keeps a master copy where another needs none.
      if (t.id.role == Role::kOptimState &&
          !ShouldBeKept(lacking,
                        in_reference ? candidate_states : reference_states,
                        t.id)) {
        why = Because(ReasonKind::kOwnState);
      }
      if (t.id.role == Role::kData && compared_modules.contains("")) {
        why = Because(ReasonKind::kOtherItems);
      }
      const auto& recorded =
          in_reference ? candidate_iterations : reference_iterations;
      if (!recorded.contains(t.id.iteration)) {
        why = Because(ReasonKind::kNoSuchIteration,
                      in_reference ? "candidate" : "reference");
      }
    }
    if (why.none() && listed.contains(t.id)) {
      why = Because(ReasonKind::kRowOfList);
    }
    if (why.none() && selected) why = Because(ReasonKind::kNotSelected);
    if (!why.none()) {
      t.excused = true;
      ++out.excused[ReasonWords(why)];
      t.reason = std::move(why);
      continue;
    }
    ++(in_reference ? out.reference_only : out.candidate_only);
  }
  return out;
}

std::vector<CleanCount> CountClean(
    const std::vector<TensorJudgement>& tensors) {
  std::vector<CleanCount> counts = {
      {"forward"}, {"backward"}, {"gradients"}, {"update"}};
  for (const TensorJudgement& t : tensors) {
    if (t.verdict == TensorVerdict::kUnmatched || t.excused) continue;
    size_t kind = 3;
    switch (t.id.role) {
      case Role::kData:
      case Role::kParam:
      case Role::kBuffer:
      case Role::kInput:
      case Role::kOutput:
      case Role::kLoss:
        kind = t.id.pass == Pass::kRecompute ? 1 : 0;
        break;
      case Role::kGradOutput:
      case Role::kGradInput:
        kind = 1;
        break;
      case Role::kGradLocal:
      case Role::kGradReduced:
        kind = 2;
        break;
      default:
        break;
    }
    CleanCount& count = counts[kind];
    ++count.of;
    if (t.diverged()) continue;
    if (t.verdict != TensorVerdict::kNotCheckable) {
      ++count.clean;
      continue;
    }
    if (count.open == 0) count.first_open = t.reason;
    ++count.open;
    count.open_but_isolated += t.judged_isolated();
  }
  counts.erase(std::remove_if(counts.begin(), counts.end(),
                              [](const CleanCount& c) { return c.of == 0; }),
               counts.end());
  return counts;
}

}  // namespace ttrace
