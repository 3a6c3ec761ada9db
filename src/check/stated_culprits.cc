#include "src/check/stated_culprits.h"

#include <algorithm>
#include <iterator>

#include "src/audit/dropout_faults.h"
#include "src/audit/gradient_faults.h"
#include "src/audit/state_faults.h"
#include "src/check/standing_culprits.h"
#include "src/experiment/parameter_roles.h"
#include "src/localize/blame.h"

namespace ttrace {
namespace {

void AddNotices(const std::vector<std::string>& texts, CheckResult* result) {
  for (const std::string& text : texts) {
    result->notes.push_back({NoteKind::kNotice, text, ""});
  }
}

// Gradients of which a factor, or all that they are, says nothing: a verdict
// within bounds would say nothing of them either.
void LeaveGradientsOpen(const HyperparameterFaults& settings,
                        bool excused_factors, CheckResult* result) {
  if (excused_factors) {
    result->notes.push_back(Unsupported(
        "gradients that one loop alone changes by a function of its own",
        "those of the other are recorded before torch's function clips them, "
        "so that a factor between the two says nothing",
        "clip by torch.nn.utils.clip_grad_norm_ in both runs, or in none"));
  }
  if (!settings.incomplete_gradients.empty()) {
    result->notes.push_back(Unsupported(
        "gradients that one loop alone clips between two backwards",
        "they are recorded when they are clipped first, and are a part of what "
        "the other's are",
        "clip after the last micro-batch in both runs"));
  }
}

// Whether something out of bounds is explained by what backward found in the
// gradients, or may be.
bool IsGradientThatIsKept(const Culprit& culprit) {
  return IsParameterGradient(culprit.tensor.role) &&
         culprit.Has(BugClass::kStaleValue);
}

bool IsMadeOfKept(const Culprit& culprit,
                  const std::set<std::pair<int, std::string>>& kept) {
  const bool has_other_class = std::any_of(
      culprit.classes.begin(), culprit.classes.end(),
      [](const Diagnosis& d) { return d.bug_class != BugClass::kStaleValue; });
  return !has_other_class && IsParameterGradient(culprit.tensor.role) &&
         !culprit.shown_by.empty() &&
         std::all_of(culprit.shown_by.begin(), culprit.shown_by.end(),
                     [&](const TensorId& id) {
                       return kept.contains({id.iteration, id.fqn});
                     });
}

}  // namespace

void AddDropoutFaults(const OpenRuns& runs, const SettingsOfRuns& settings,
                      const std::optional<IterationRange>& iterations,
                      CheckResult* result) {
  const Side& candidate = *runs.candidate;
  const DropoutFacts& own = settings.candidate.dropout;
  DropoutFaults found = FindDropoutFaults(
      own, RanksOf(candidate.trace()), !result->culprits.empty(), iterations);
  if (settings.reference) {
    const DropoutFacts& theirs = settings.reference->dropout;
    DropoutFaults other = CompareProbabilities(theirs, own, iterations);
    found.culprits.insert(found.culprits.end(),
                          std::make_move_iterator(other.culprits.begin()),
                          std::make_move_iterator(other.culprits.end()));
    // The reference is trusted: what is strange about it is said.
    const DropoutFaults strange = FindDropoutFaults(
        theirs, RanksOf(runs.reference->trace()), false, iterations);
    for (const Culprit& culprit : strange.culprits) {
      found.notes.push_back("in the reference, " +
                            culprit.classes.front().evidence);
    }
  }
  AddNotices(found.notes, result);
  // Masks are drawn before anything is computed with them.
  Insert(std::move(found.culprits), Moment::kBegin, &result->culprits);
}

void AddHyperparameterFaults(HyperparameterFaults settings,
                             bool excused_factors, CheckResult* result) {
  AddNotices(settings.notes, result);
  LeaveGradientsOpen(settings, excused_factors, result);
  Insert(std::move(settings.culprits), Moment::kStep, &result->culprits);
}

void AddStateFaults(const Side& reference, const Side& candidate,
                    const std::optional<IterationRange>& iterations,
                    CheckResult* result) {
  StateFaults found =
      FindStateFaults(reference.facts().state_changes,
                      candidate.facts().state_changes, iterations);
  for (const std::string& what : found.open) {
    result->notes.push_back(
        Unsupported("state that is changed between steps in one run", what,
                    "bound or change weights and state in both runs alike"));
  }
  Insert(std::move(found.culprits), Moment::kAfterStep, &result->culprits);
  // Where weights were grafted, values show it and say which step it was.
  if (std::none_of(result->culprits.begin(), result->culprits.end(),
                   IsGradientThatIsKept)) {
    Insert(std::move(found.gradients), Moment::kBackward, &result->culprits);
  }
  FoldIntoKeptGradients(found.kept, &result->culprits);
}

void AddAbsentGradients(const Side& reference, const Side& candidate,
                        const std::optional<IterationRange>& iterations,
                        CheckResult* result) {
  const auto of = [](const Side& side) {
    return StepGradients{&side.facts().absent_gradients,
                         &side.facts().gradient_norms};
  };
  if (std::any_of(
          result->culprits.begin(), result->culprits.end(),
          [](const Culprit& c) { return c.Has(BugClass::kMissingOrZero); })) {
    return;
  }
  ModulesThatRan ran;
  for (const TensorJudgement& t : result->tensors) {
    if (t.id.role == Role::kOutput && t.verdict != TensorVerdict::kUnmatched) {
      ran.emplace(t.id.iteration, t.id.fqn);
    }
  }
  Insert(FindAbsentGradients(of(reference), of(candidate), ran, iterations),
         Moment::kBackward, &result->culprits);
}

void FoldIntoKeptGradients(const std::set<std::pair<int, std::string>>& kept,
                           std::vector<Culprit>* culprits) {
  const auto into =
      std::find_if(culprits->begin(), culprits->end(), IsGradientThatIsKept);
  if (into == culprits->end()) return;
  for (Culprit& culprit : *culprits) {
    if (&culprit == &*into || !IsMadeOfKept(culprit, kept)) continue;
    AddRanks(culprit.ranks, &*into);
    AddShownBy(culprit.shown_by, &*into);
  }
  const TensorId named = into->tensor;
  std::erase_if(*culprits, [&](const Culprit& culprit) {
    return culprit.tensor != named && IsMadeOfKept(culprit, kept);
  });
}

}  // namespace ttrace
