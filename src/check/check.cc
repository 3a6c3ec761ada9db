#include "src/check/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/audit/hyperparameter_faults.h"
#include "src/check/conclusion.h"
#include "src/check/describe_run.h"
#include "src/check/diagnostician.h"
#include "src/check/evidence_coverage.h"
#include "src/check/explain_coverage.h"
#include "src/check/notes_on_check.h"
#include "src/check/standing_culprits.h"
#include "src/check/stated_culprits.h"
#include "src/diagnose/same_explanation.h"
#include "src/experiment/parameter_roles.h"
#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"
#include "src/judge/judge_bits.h"
#include "src/judge/judge_run.h"
#include "src/judge/reason_words.h"
#include "src/localize/agreement.h"
#include "src/localize/contradictions.h"
#include "src/localize/dataflow.h"
#include "src/localize/isolation.h"
#include "src/localize/loop_scaling.h"
#include "src/localize/source_of_tensor.h"

namespace ttrace {
namespace {

// A reader looks at the first places: each picture reads a tensor again.
constexpr size_t kMostPictures = 8;

void NameForeignRows(const RowAlignment& rows,
                     std::vector<TensorJudgement>* tensors) {
  for (TensorJudgement& t : *tensors) {
    if (!t.diverged() || !IsFed(t.id)) continue;
    if (t.reason.kind == ReasonKind::kForeignPart) continue;
    t.reason.foreign_rows = rows.Foreign(t.id.iteration);
    t.reason.repeating = rows.Repeating(t.id.iteration);
  }
}

// A reader looks for a place in the candidate's code.
void NameInCandidate(const FusedModules& fused,
                     std::vector<Culprit>* culprits) {
  for (Culprit& culprit : *culprits) {
    const auto found = fused.names.find(culprit.fqn);
    if (found != fused.names.end()) culprit.name_in_candidate = found->second;
  }
}

// The second way to a place, where the candidate has an isolated leg.
void JoinIsolation(Localization places, const Side& candidate,
                   CheckResult* result) {
  IsolationOutcome isolation =
      LocalizeIsolated(result->tensors, candidate.facts().escaped_parameters,
                       candidate.facts().fused_modules);
  IsolationSummary& summary = result->isolation;
  summary.ran = isolation.of > 0;
  if (!summary.ran) {
    result->culprits = std::move(places.culprits);
    result->downstream = places.downstream;
    return;
  }
  summary.judged = isolation.judged;
  summary.of = isolation.of;
  Agreement agreement = Agree(result->tensors, std::move(places), isolation);
  summary.faulty = agreement.by_both + agreement.by_isolation;
  summary.hidden = agreement.by_isolation;
  summary.disputed = agreement.by_dataflow;
  result->notes.push_back(
      {NoteKind::kIsolation, AgreementWords(isolation, agreement), ""});
  result->culprits = std::move(agreement.culprits);
  result->downstream = agreement.downstream;
}

// A buffer that something wrong was computed with is out of bounds as any other
// tensor is.
void ConvictCarriedBuffers(CheckResult* result) {
  std::set<TensorId> named;
  for (const Culprit& culprit : result->culprits) named.insert(culprit.tensor);
  for (TensorJudgement& t : result->tensors) {
    if (!t.carried_out() || !named.contains(t.id)) continue;
    const auto counted = result->coverage.excused.find(ReasonWords(t.reason));
    if (counted != result->coverage.excused.end() && --counted->second == 0) {
      result->coverage.excused.erase(counted);
    }
    ++result->coverage.compared;
    t.verdict = TensorVerdict::kDiverged;
    t.excused = false;
    t.reason = {};
  }
}

// A culprit is a finding if nothing that was judged contradicts it.
void ContestCulprits(CheckResult* result) {
  std::vector<Culprit> convicted;
  for (Culprit& culprit : result->culprits) {
    culprit.contradictions = Contradicting(culprit, result->tensors);
    (culprit.contradictions.empty() ? convicted : result->contested)
        .push_back(std::move(culprit));
  }
  result->culprits = std::move(convicted);
}

// Decisions that the runs' routers took otherwise. Those of a map that itself
// stands after others say nothing of their own.
void SummariseRouting(CheckResult* result) {
  RoutingSummary& sum = result->routing;
  for (const TensorJudgement& t : result->tensors) {
    // A forward that is computed again decides nothing anew.
    const LegJudgement* leg = t.deciding();
    if (leg == nullptr || !leg->flips || t.id.pass != Pass::kForward) continue;
    sum.tokens += leg->flips->tokens;
    sum.otherwise += leg->flips->flipped;
    sum.tied += leg->flips->tied;
  }
}

// Places in what the values show, by both ways.
void Locate(const OpenRuns& runs, CheckResult* result) {
  const Side& candidate = *runs.candidate;
  JoinIsolation(Localize(result->tensors,
                         {.weights_grafted = candidate.facts().weights_grafted,
                          .data_grafted = candidate.facts().data_grafted,
                          .bitwise = result->bitwise,
                          .fused = candidate.facts().fused_modules}),
                candidate, result);
  ConvictCarriedBuffers(result);
  if (result->culprits.empty()) {
    result->culprits = FirstDiverged(result->tensors);
  }
}

// Gives each culprit its classes; several of one cause become one.
void ExplainCulprits(const OpenRuns& runs, const Hyperparameters& settings,
                     const ReplayedSteps& steps, CheckResult* result) {
  const Side* reference = runs.reference ? &*runs.reference : nullptr;
  const Side& candidate = *runs.candidate;
  const Diagnostician diagnostician(reference, candidate, runs.context.plans,
                                    runs.context.rows, result->tensors, steps,
                                    settings);
  std::vector<Culprit> explained;
  for (Culprit& culprit : result->culprits) {
    for (Culprit& part : ExplainEachName(std::move(culprit), [&](Culprit* one) {
           diagnostician.Explain(one);
         })) {
      explained.push_back(std::move(part));
    }
  }
  result->culprits = std::move(explained);
  NameLoopScaling(runs.gradient_factors, settings, &result->culprits);
  if (const int joined = JoinSameExplanation(&result->culprits); joined > 0) {
    result->notes.push_back(
        {NoteKind::kJoined,
         fmt::format("{} more faulty place{} the explanation of another one, "
                     "with which they are counted",
                     joined, joined == 1 ? " has" : "s have"),
         ""});
  }
  const size_t pictured = std::min(result->culprits.size(), kMostPictures);
  for (size_t i = 0; i < pictured; ++i) {
    diagnostician.Picture(&result->culprits[i]);
  }
}

// Culprits in the order of execution, explained, and those that other evidence
// contradicts apart.
void FindCulprits(const CheckOptions& options, const OpenRuns& runs,
                  const SettingsOfRuns& said, const ReplayedSteps& steps,
                  CheckResult* result) {
  const Side* reference = runs.reference ? &*runs.reference : nullptr;
  const Side& candidate = *runs.candidate;
  Locate(runs, result);
  // What the runs were told differs: facts, beside what their numbers show.
  const Hyperparameters& own = said.candidate.hyperparameters;
  HyperparameterFaults settings = FindHyperparameterFaults(
      said.reference ? &said.reference->hyperparameters : nullptr, own,
      options.iterations);
  Excuses excuses = ExcusesOf(result->notes);
  excuses.unlike_gradients = settings.unlike_gradients;
  excuses.incomplete_gradients = settings.incomplete_gradients;
  Standing standing;
  // Nothing excuses a difference of bits, and its size says nothing of a class.
  if (!options.bitwise) {
    standing =
        WithoutExcused(std::move(result->culprits), result->tensors, excuses);
    result->culprits = std::move(standing.culprits);
    if (excuses.nothing_is_comparable) result->downstream = 0;
    ExplainCulprits(runs, own, steps, result);
  }
  AddDropoutFaults(runs, said, options.iterations, result);
  AddHyperparameterFaults(std::move(settings), standing.excused_factors,
                          result);
  if (reference != nullptr) {
    AddAbsentGradients(*reference, candidate, options.iterations, result);
    AddStateFaults(*reference, candidate, options.iterations, result);
  }
  NameInCandidate(candidate.facts().fused_modules, &result->culprits);
  for (Culprit& culprit : result->culprits) {
    culprit.source = SourceOf(candidate.facts().source_lines, culprit);
  }
  if (!options.bitwise) ContestCulprits(result);
}

// How much of it is in bounds, and by what it was compared.
void CountTensors(CheckResult* result) {
  result->clean = CountClean(result->tensors);
  for (const TensorJudgement& t : result->tensors) {
    result->suspects +=
        t.verdict == TensorVerdict::kSuspect ||
        (t.judged_isolated() && t.isolated->verdict == TensorVerdict::kSuspect);
    if (!t.legs.empty() && !t.excused &&
        t.verdict != TensorVerdict::kUnmatched) {
      ++result->by_fidelity[static_cast<size_t>(t.legs.front().fidelity)];
    }
    const bool too_wide =
        t.verdict == TensorVerdict::kNotCheckable && !t.excused;
    result->not_checkable += too_wide && !t.judged_isolated();
    result->isolation.rescued += too_wide && t.judged_isolated();
  }
  SummariseRouting(result);
}

ConclusionInput WhatDecides(const OpenRuns& runs, const ReplayedSteps& steps,
                            int64_t replica_groups, const CheckResult& result) {
  ConclusionInput input;
  input.replica_groups = replica_groups;
  for (const auto& [step, replayed] : steps) {
    input.replayed_steps += replayed.whole;
    if (!input.step_gap && !replayed.gaps.empty()) {
      const auto& [gap, ranks] = *replayed.gaps.begin();
      input.step_gap = ReasonOf(gap, ranks);
    }
  }
  if (runs.reference && !result.bitwise) {
    input.evidence = CoverEvidence(*runs.candidate, result.tensors);
  }
  return input;
}

}  // namespace

Result<CheckResult> RunCheck(const CheckOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  TTRACE_ASSIGN_OR_RETURN(const auto runs, OpenRuns::Open(options));
  TTRACE_ASSIGN_OR_RETURN(Measurements measured,
                          MeasureRun(runs->context, Share{}));
  TTRACE_ASSIGN_OR_RETURN(CheckResult result,
                          JudgeAndExplain(options, *runs, std::move(measured)));
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return result;
}

Result<CheckResult> JudgeAndExplain(const CheckOptions& options,
                                    const OpenRuns& runs,
                                    Measurements measured) {
  CheckResult result;
  const Side& candidate = *runs.candidate;
  const Side* reference = runs.reference ? &*runs.reference : nullptr;
  result.has_reference = reference != nullptr;
  result.candidate = DescribeSide(candidate);
  if (reference != nullptr) result.reference = DescribeSide(*reference);
  result.iterations = runs.iterations;
  SettingsOfRuns said = {std::nullopt, RunSettings(candidate)};
  if (reference != nullptr) said.reference.emplace(*reference);
  result.notes = NotesOnRuns(runs, said);

  result.bitwise = options.bitwise;
  JudgeOutcome judged;
  if (options.bitwise) {
    judged = JudgeBits(runs.context, &measured);
  } else {
    TTRACE_ASSIGN_OR_RETURN(judged,
                            JudgeRun(runs.context, options.risk, &measured));
  }
  Append(NotesOnTensors(runs, judged, measured.reference_steps), &result.notes);
  if (reference != nullptr) {
    NoteDamage(*reference, std::move(measured.reference_damage), &result.notes);
  }
  NoteDamage(candidate, std::move(measured.damage), &result.notes);
  result.tensors = std::move(judged.tensors);
  result.bytes_compared = measured.bytes_compared;
  result.tests = judged.tests;
  result.risk = options.risk;
  result.coverage = ExplainCoverage(reference, candidate,
                                    runs.context.batch.listed, &result.tensors);
  NameForeignRows(runs.context.rows, &result.tensors);

  FindCulprits(options, runs, said, measured.steps, &result);
  CountTensors(&result);
  result.forms = FormsOf(result.tensors, reference, candidate);
  result.causes = CausesOf(result.tensors, result.culprits);
  result.modules = ModulesOf(candidate);

  const ConclusionInput input =
      WhatDecides(runs, measured.steps, judged.replica_groups, result);
  Append(input.evidence.missing, &result.notes);
  std::stable_sort(
      result.notes.begin(), result.notes.end(),
      [](const RunNote& a, const RunNote& b) { return a.kind < b.kind; });
  const Conclusion conclusion = Conclude(result, input);
  result.verdict = conclusion.verdict;
  result.reason = conclusion.reason;
  result.next_steps = NextSteps(result);
  return result;
}

}  // namespace ttrace
