#include "src/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/check/conclusion.h"
#include "src/check/diagnostician.h"
#include "src/check/evidence_coverage.h"
#include "src/check/explain_coverage.h"
#include "src/check/row_notes.h"
#include "src/diagnose/same_explanation.h"
#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"
#include "src/judge/judge_run.h"
#include "src/localize/agreement.h"
#include "src/localize/contradictions.h"
#include "src/localize/dataflow.h"
#include "src/localize/dropout_faults.h"
#include "src/localize/hyperparameter_faults.h"
#include "src/localize/isolation.h"
#include "src/localize/loop_scaling.h"
#include "src/localize/state_faults.h"
#include "src/report/reason_words.h"

namespace ttrace {
namespace {

SideSummary Summarise(const Side& side) {
  SideSummary out;
  out.folder = side.trace().folder();
  out.world_size = side.trace().world_size();
  out.legs = side.Legs();
  std::vector<std::string> dims;
  for (const MeshDim& dim : side.trace().mesh().dims) {
    if (dim.size > 1) dims.push_back(fmt::format("{}={}", dim.name, dim.size));
  }
  out.mesh =
      dims.empty() ? "1 process" : fmt::format("{}", fmt::join(dims, " "));
  return out;
}

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
  IsolationOutcome isolation = LocalizeIsolated(
      result->tensors, candidate.handed_out(), candidate.fused_modules());
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
  RunNote note;
  note.kind = NoteKind::kIsolation;
  note.reason = AgreementWords(isolation, agreement);
  result->notes.push_back(std::move(note));
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
    const auto counted = result->coverage.explained.find(ReasonWords(t.reason));
    if (counted != result->coverage.explained.end() && --counted->second == 0) {
      result->coverage.explained.erase(counted);
    }
    ++result->coverage.compared;
    t.verdict = TensorVerdict::kDiverged;
    t.explained = false;
    t.reason = {};
  }
}

// One value of a module may not be observed, while others were compared.
void SayWhatWasCompared(CheckResult* result) {
  std::set<std::string> compared;
  for (const TensorJudgement& t : result->tensors) {
    if (t.verdict != TensorVerdict::kUnmatched) compared.insert(t.id.fqn);
  }
  for (RunNote& note : result->notes) {
    if (note.kind != NoteKind::kNotObserved || note.names.empty()) continue;
    note.numbers = {static_cast<double>(std::count_if(
        note.names.begin() + 1, note.names.end(),
        [&](const std::string& name) { return compared.contains(name); }))};
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

void AddNotes(const std::vector<RunNote>& notes, CheckResult* result) {
  result->notes.insert(result->notes.end(), notes.begin(), notes.end());
}

void AddDefects(const Side& side, CheckResult* result) {
  for (const std::string& defect : side.defects()) {
    RunNote note;
    note.kind = NoteKind::kDefect;
    note.reason = defect;
    result->notes.push_back(std::move(note));
  }
}

// Facts by which the two runs compute different functions, so that nothing that
// they compute can be compared.
void CompareComputations(const Side& reference, const Side& candidate,
                         CheckResult* result) {
  for (const auto& [name, fact] : candidate.computation()) {
    const auto other = reference.computation().find(name);
    if (other == reference.computation().end() ||
        other->second.value == fact.value) {
      continue;
    }
    RunNote note;
    note.kind = NoteKind::kComputation;
    note.names = {name, other->second.value, fact.value};
    note.way_out = fact.option;
    result->notes.push_back(std::move(note));
  }
}

// Whoever met damaged bytes may have gone on without them: no verdict stands on
// what is left. `damaged`: what measuring met, perhaps in another process.
void NoteDamage(const Side& side, DamagedNumbers damaged, CheckResult* result) {
  AddDamage(side.trace(), &damaged);
  if (damaged.empty()) return;
  RunNote note;
  note.kind = NoteKind::kDamage;
  note.count = static_cast<int64_t>(damaged.size());
  note.reason = damaged.begin()->second;
  note.way_out = "record it again";
  result->notes.push_back(std::move(note));
}

// What makes values of the reference no yardstick for the candidate's.
bool NothingIsComparable(const CheckResult& result) {
  return std::any_of(result.notes.begin(), result.notes.end(),
                     [](const RunNote& note) {
                       return note.kind == NoteKind::kUnsupported ||
                              note.kind == NoteKind::kComputation ||
                              note.kind == NoteKind::kDropout ||
                              note.kind == NoteKind::kNotGrafted ||
                              note.kind == NoteKind::kDamage;
                     });
}

// Of culprits, those that stand although nothing is comparable: none if the run
// uses what is not supported or bytes are damaged, else copies that differ,
// steps that are wrong by themselves, and ranks that read one another's data.
void KeepWhatNeedsNoReference(CheckResult* result) {
  const bool copies_too = std::any_of(
      result->notes.begin(), result->notes.end(), [](const RunNote& note) {
        return note.kind == NoteKind::kUnsupported ||
               note.kind == NoteKind::kDamage;
      });
  std::set<TensorId> differing;
  if (!copies_too) {
    for (const TensorJudgement& t : result->tensors) {
      if (t.replicas_differ || t.step_differs() ||
          t.reason.kind == ReasonKind::kForeignPart) {
        differing.insert(t.id);
      }
    }
  }
  std::erase_if(result->culprits, [&](const Culprit& culprit) {
    return !differing.contains(culprit.tensor);
  });
  result->downstream = 0;
}

// Nothing diverged may stay without a place: if the dataflow names none, the
// first diverged tensor stands for itself.
void EnsureCulprit(CheckResult* result) {
  if (!result->culprits.empty()) return;
  for (const TensorJudgement& t : result->tensors) {
    if (!t.diverged()) continue;
    Culprit culprit;
    culprit.fqn = t.id.fqn;
    culprit.tensor = t.id;
    culprit.ranks = t.ranks;
    culprit.iteration = t.id.iteration;
    culprit.headroom = t.headroom;
    culprit.where =
        "the first tensor out of bound in execution order; what it was made "
        "from is not recorded";
    culprit.affected.examples = {t.id.fqn};
    result->culprits.push_back(std::move(culprit));
    return;
  }
}

// Where in its iteration something went wrong that no tensor shows.
enum class Moment : uint8_t { kBegin, kBackward, kStep, kAfterStep };

// Whether a culprit of one iteration comes before that moment. What the step
// made comes after what it was told.
bool IsBefore(const Culprit& culprit, Moment moment) {
  switch (moment) {
    case Moment::kBegin:
      return false;
    case Moment::kBackward:
      return culprit.direction == Direction::kForward;
    case Moment::kStep:
      return culprit.direction != Direction::kUpdate;
    case Moment::kAfterStep:
      return true;
  }
  return true;
}

// Puts culprits where they belong among those that are there. Those of one
// iteration stay in their order.
void Insert(std::vector<Culprit> culprits, Moment moment, CheckResult* result) {
  // Behind a step each comes after those before it, else in front of them.
  if (moment != Moment::kAfterStep) {
    std::reverse(culprits.begin(), culprits.end());
  }
  for (Culprit& culprit : culprits) {
    const auto after = std::find_if(
        result->culprits.begin(), result->culprits.end(),
        [&](const Culprit& c) {
          return c.iteration > culprit.iteration ||
                 (c.iteration == culprit.iteration && !IsBefore(c, moment));
        });
    result->culprits.insert(after, std::move(culprit));
  }
}

void AddNotices(const std::vector<std::string>& texts, CheckResult* result) {
  for (const std::string& text : texts) {
    RunNote note;
    note.reason = text;
    result->notes.push_back(std::move(note));
  }
}

// Dropout that is on, or was switched off: what that means for a comparison.
void NoteDropout(const Side& reference, const Side& candidate,
                 CheckResult* result) {
  const DropoutFacts own = ReadDropout(candidate.trace());
  RunNote note;
  note.kind = NoteKind::kDropout;
  note.reason = DropoutPreventsComparison(ReadDropout(reference.trace()), own);
  if (!note.reason.empty()) result->notes.push_back(note);
  if (const std::string off = DropoutIsOff(own); !off.empty()) {
    note.kind = NoteKind::kDropoutOff;
    note.reason = off;
    result->notes.push_back(std::move(note));
  }
}

// Of values that were computed with other random numbers nothing can be said.
void NoteUnlikeDraws(const std::set<std::string>& modules,
                     CheckResult* result) {
  const auto reached = std::count_if(
      result->tensors.begin(), result->tensors.end(),
      [](const auto& t) { return t.reason.kind == ReasonKind::kUnlikeDraws; });
  if (reached == 0) return;
  RunNote note;
  note.kind = NoteKind::kUnlikeDraws;
  note.count = static_cast<int64_t>(modules.size());
  for (const std::string& module : modules) {
    note.names.push_back(module.empty() ? "the model itself" : module);
  }
  note.numbers = {static_cast<double>(reached)};
  note.way_out =
      "switch the random numbers off in both runs, or draw them in the loop "
      "and hand them to the model: its inputs are replaced by --graft";
  result->notes.push_back(std::move(note));
}

// Of a step that was skipped because of overflow, what overflowed elsewhere, or
// in one run only, tells nothing. One note for each iteration.
void NoteOverflow(CheckResult* result) {
  std::map<int, RunNote> notes;
  for (const TensorJudgement& t : result->tensors) {
    if (t.reason.kind != ReasonKind::kOverflow) continue;
    const auto [found, is_new] = notes.try_emplace(t.id.iteration);
    RunNote& note = found->second;
    if (!is_new) {
      ++note.count;
      continue;
    }
    note.kind = NoteKind::kOverflow;
    note.numbers = {static_cast<double>(t.id.iteration)};
    note.names = {fmt::format("{} {}", t.id.fqn, ToString(t.id.role))};
    note.numbers.insert(note.numbers.end(), t.reason.counts.begin(),
                        t.reason.counts.end());
    note.way_out =
        "capture an iteration whose step is made (--iterations), or start both "
        "runs with a smaller loss scale";
  }
  for (auto& [iteration, note] : notes)
    result->notes.push_back(std::move(note));
}

// What is padded has no gradient where nothing looks at it. The first that has
// one, in the order of execution.
void NotePadding(CheckResult* result) {
  const TensorJudgement* first = nullptr;
  int64_t count = 0;
  for (const TensorJudgement& t : result->tensors) {
    if (!(t.padding_gradient.largest() > 0)) continue;
    ++count;
    if (first == nullptr || t.order < first->order) first = &t;
  }
  if (first == nullptr) return;
  RunNote note;
  note.kind = NoteKind::kPaddingGradient;
  note.count = count;
  note.names = {ToString(first->id)};
  note.numbers = {first->padding_gradient.candidate,
                  first->padding_gradient.reference};
  result->notes.push_back(std::move(note));
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

// Masks are drawn before anything is computed with them.
void AddDropoutFaults(const Side* reference, const Side& candidate,
                      const std::optional<IterationRange>& iterations,
                      CheckResult* result) {
  const DropoutFacts own = ReadDropout(candidate.trace());
  DropoutFaults found = FindDropoutFaults(
      own, RanksOf(candidate.trace()), !result->culprits.empty(), iterations);
  if (reference != nullptr) {
    const DropoutFacts theirs = ReadDropout(reference->trace());
    DropoutFaults other = CompareProbabilities(theirs, own, iterations);
    found.culprits.insert(found.culprits.end(),
                          std::make_move_iterator(other.culprits.begin()),
                          std::make_move_iterator(other.culprits.end()));
    // The reference is trusted: what is strange about it is said.
    const DropoutFaults strange = FindDropoutFaults(
        theirs, RanksOf(reference->trace()), false, iterations);
    for (const Culprit& culprit : strange.culprits) {
      found.notes.push_back("in the reference, " +
                            culprit.classes.front().evidence);
    }
  }
  AddNotices(found.notes, result);
  Insert(std::move(found.culprits), Moment::kBegin, result);
}

// The reference is trusted: that its steps are strange as well is said.
void NoteSteps(const ReplayedSteps& reference, CheckResult* result) {
  int64_t off = 0;
  const StepOfParameter* first = nullptr;
  for (const auto& [step, replayed] : reference) {
    if (!replayed.out()) continue;
    ++off;
    if (first == nullptr) first = &step;
  }
  if (off == 0) return;
  AddNotices(
      {fmt::format("of {} steps of the candidate's optimizer that are not what "
                   "its settings make of what it recorded, {} are not in the "
                   "reference either (first {}, iteration {})",
                   reference.size(), off, first->fqn, first->iteration)},
      result);
}

// A verdict within bounds says nothing of what cannot be compared.
void LeaveOpen(std::string what, std::string reason, std::string way_out,
               CheckResult* result) {
  RunNote note;
  note.kind = NoteKind::kUnsupported;
  note.names = {std::move(what)};
  note.reason = std::move(reason);
  note.way_out = std::move(way_out);
  result->notes.push_back(std::move(note));
}

// A common factor of reduced gradients, of which one side's were recorded
// before clipping and the other's behind what may be clipping, is no fault that
// is known: the verdict is open.
void LeaveFactorsOpen(const std::set<int>& iterations, CheckResult* result) {
  const auto erased =
      std::erase_if(result->culprits, [&](const Culprit& culprit) {
        return culprit.tensor.role == Role::kGradReduced &&
               iterations.contains(culprit.iteration) &&
               !culprit.classes.empty() &&
               culprit.classes.front().letter == "K";
      });
  if (erased == 0) return;
  LeaveOpen("gradients that one loop alone changes by a function of its own",
            "those of the other are recorded before torch's function clips "
            "them, so that a factor between the two says nothing",
            "clip by torch.nn.utils.clip_grad_norm_ in both runs, or in none",
            result);
}

bool IsGradient(Role role) {
  return role == Role::kGradLocal || role == Role::kGradReduced ||
         role == Role::kGradNorm;
}

// Gradients that are a part of one side's are not compared with the whole.
void LeaveIncompleteOpen(const std::set<int>& iterations, CheckResult* result) {
  if (iterations.empty()) return;
  std::erase_if(result->culprits, [&](const Culprit& culprit) {
    return IsGradient(culprit.tensor.role) &&
           iterations.contains(culprit.iteration);
  });
  LeaveOpen("gradients that one loop alone clips between two backwards",
            "they are recorded when they are clipped first, and are a part of "
            "what the other's are",
            "clip after the last micro-batch in both runs", result);
}

// What the runs were told differs: facts, beside what their numbers show.
void AddSettingsFaults(const Side* reference, const Side& candidate,
                       const std::optional<IterationRange>& iterations,
                       CheckResult* result) {
  const Hyperparameters own = ReadHyperparameters(candidate.trace());
  std::optional<Hyperparameters> theirs;
  if (reference != nullptr) theirs = ReadHyperparameters(reference->trace());
  HyperparameterFaults found =
      FindHyperparameterFaults(theirs ? &*theirs : nullptr, own, iterations);
  AddNotices(found.notes, result);
  Insert(std::move(found.culprits), Moment::kStep, result);
  LeaveFactorsOpen(found.unlike_gradients, result);
  LeaveIncompleteOpen(found.incomplete_gradients, result);
}

// Whether something out of bounds is explained by what backward found in the
// gradients, or may be.
bool IsGradientThatIsKept(const Culprit& culprit) {
  const Role role = culprit.tensor.role;
  return (role == Role::kGradLocal || role == Role::kGradReduced) &&
         std::any_of(culprit.classes.begin(), culprit.classes.end(),
                     [](const Diagnosis& d) { return d.letter == "S"; });
}

// What one run changes beside its optimizer, and the other does not.
void AddStateFaults(const Side& reference, const Side& candidate,
                    const std::optional<IterationRange>& iterations,
                    CheckResult* result) {
  StateFaults found = FindStateFaults(reference.state_changes(),
                                      candidate.state_changes(), iterations);
  for (const std::string& what : found.open) {
    LeaveOpen("state that is changed between steps in one run", what,
              "bound or change weights and state in both runs alike", result);
  }
  Insert(std::move(found.culprits), Moment::kAfterStep, result);
  // Where weights were grafted, values show it and say which step it was.
  if (std::none_of(result->culprits.begin(), result->culprits.end(),
                   IsGradientThatIsKept)) {
    Insert(std::move(found.gradients), Moment::kBackward, result);
  }
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
  const RunContext& context = runs.context;
  result.has_reference = reference != nullptr;
  result.candidate = Summarise(candidate);
  result.iterations = runs.iterations;
  AddNotes(candidate.notes(), &result);
  AddDefects(candidate, &result);
  if (reference != nullptr) {
    result.reference = Summarise(*reference);
    AddNotes(reference->notes(), &result);
    AddDefects(*reference, &result);
    CompareComputations(*reference, candidate, &result);
    NoteDropout(*reference, candidate, &result);
    AddNotes(runs.plan_notes, &result);
    AddNotes(RowNotes(*reference, candidate, context.rows), &result);
  } else {
    AddNotes(TwinNotes(candidate), &result);
  }

  TTRACE_ASSIGN_OR_RETURN(auto judged,
                          JudgeRun(context, options.risk, &measured));
  result.tensors = std::move(judged.tensors);
  result.bytes_compared = measured.bytes_compared;
  result.tests = judged.tests;
  result.risk = options.risk;
  NoteUnlikeDraws(judged.unlike_draws, &result);
  NoteOverflow(&result);
  SummariseRouting(&result);
  if (judged.not_repeatable > 0) {
    RunNote note;
    note.kind = NoteKind::kNotRepeatable;
    note.count = judged.not_repeatable;
    note.numbers = {judged.largest_repeat};
    result.notes.push_back(std::move(note));
  }
  NotePadding(&result);
  NoteSteps(measured.reference_steps, &result);
  result.coverage = ExplainCoverage(reference, candidate, context.batch.listed,
                                    &result.tensors);
  SayWhatWasCompared(&result);
  NameForeignRows(context.rows, &result.tensors);

  Localization places =
      Localize(result.tensors, {.weights_grafted = candidate.weights_grafted(),
                                .data_grafted = candidate.data_grafted(),
                                .fused = candidate.fused_modules()});
  JoinIsolation(std::move(places), candidate, &result);
  ConvictCarriedBuffers(&result);
  EnsureCulprit(&result);
  if (reference != nullptr) {
    NoteDamage(*reference, std::move(measured.reference_damage), &result);
  }
  NoteDamage(candidate, std::move(measured.damage), &result);
  if (NothingIsComparable(result)) KeepWhatNeedsNoReference(&result);
  const Diagnostician diagnostician(reference, candidate, context.plans,
                                    context.rows, result.tensors,
                                    measured.steps);
  std::vector<Culprit> explained;
  for (Culprit& culprit : result.culprits) {
    for (Culprit& part : ExplainEachName(std::move(culprit), [&](Culprit* one) {
           diagnostician.Explain(one);
         })) {
      explained.push_back(std::move(part));
    }
  }
  result.culprits = std::move(explained);
  NameLoopScaling(runs.gradient_factors, ReadHyperparameters(candidate.trace()),
                  &result.culprits);
  if (const int joined = JoinSameExplanation(&result.culprits); joined > 0) {
    RunNote note;
    note.kind = NoteKind::kJoined;
    note.count = joined;
    result.notes.push_back(std::move(note));
  }

  AddDropoutFaults(reference, candidate, options.iterations, &result);
  AddSettingsFaults(reference, candidate, options.iterations, &result);
  if (reference != nullptr) {
    AddStateFaults(*reference, candidate, options.iterations, &result);
  }

  NameInCandidate(candidate.fused_modules(), &result.culprits);
  ContestCulprits(&result);
  result.clean = CountClean(result.tensors);
  for (const TensorJudgement& t : result.tensors) {
    result.suspects +=
        t.verdict == TensorVerdict::kSuspect ||
        (t.judged_alone() && t.isolated->verdict == TensorVerdict::kSuspect);
    if (!t.legs.empty() && !t.explained &&
        t.verdict != TensorVerdict::kUnmatched) {
      ++result.by_fidelity[static_cast<size_t>(t.legs.front().fidelity)];
    }
    const bool too_wide =
        t.verdict == TensorVerdict::kNotCheckable && !t.explained;
    result.not_checkable += too_wide && !t.judged_alone();
    result.isolation.rescued += too_wide && t.judged_alone();
  }
  ConclusionInput input;
  input.replica_groups = judged.replica_groups;
  for (const auto& [step, replayed] : measured.steps) {
    input.replayed_steps += replayed.whole;
    if (!input.step_gap && !replayed.gaps.empty()) {
      const auto& [gap, ranks] = *replayed.gaps.begin();
      input.step_gap = ReasonOf(gap, ranks);
    }
  }
  if (reference != nullptr) {
    input.evidence = CoverEvidence(candidate, result.tensors);
  }
  AddNotes(input.evidence.missing, &result);
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
