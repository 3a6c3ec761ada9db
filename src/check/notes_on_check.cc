#include "src/check/notes_on_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "src/audit/dropout_faults.h"
#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/base/rank_words.h"
#include "src/check/row_notes.h"

namespace ttrace {
namespace {

using Notes = std::vector<RunNote>;

constexpr size_t kExamples = 3;

void NoteDefects(const Side& side, Notes* notes) {
  for (const std::string& defect : side.defects()) {
    notes->push_back({NoteKind::kDefect, defect, ""});
  }
}

// "on", or where ranks do not agree "off (rank 0), on (ranks 1, 2)".
std::string ValueWords(const ComputationFact& fact) {
  if (fact.values.size() == 1) return fact.values.begin()->first;
  std::vector<std::string> words;
  for (const auto& [value, ranks] : fact.values) {
    words.push_back(fmt::format("{} ({})", value, RankWords(ranks)));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::set<std::string> ValuesOf(const ComputationFact& fact) {
  std::set<std::string> out;
  for (const auto& [value, ranks] : fact.values) out.insert(value);
  return out;
}

// Facts by which the two runs compute different functions, so that nothing that
// they compute can be compared.
void CompareComputations(const Side& reference, const Side& candidate,
                         Notes* notes) {
  for (const auto& [name, fact] : candidate.facts().computation) {
    const auto other = reference.facts().computation.find(name);
    if (other == reference.facts().computation.end() ||
        ValuesOf(other->second) == ValuesOf(fact)) {
      continue;
    }
    notes->push_back(
        {NoteKind::kComputation,
         fmt::format("the runs compute different functions: {} is {} in the "
                     "reference and {} in the candidate",
                     name, ValueWords(other->second), ValueWords(fact)),
         fact.option});
  }
}

// "--iterations 0:2"; empty if no range holds what both sides have.
std::string CommonRange(const std::set<int>& a, const std::set<int>& b) {
  std::vector<int> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                        std::back_inserter(common));
  if (common.empty() ||
      common.back() - common.front() + 1 != static_cast<int>(common.size())) {
    return "";
  }
  return fmt::format("--iterations {}:{}", common.front(), common.back() + 1);
}

// Iterations of which one side has nothing at all: said once, whatever of them
// the other has.
void NoteMissingIterations(const std::set<int>& has, const std::set<int>& lacks,
                           const char* lacking, Notes* notes) {
  std::vector<int> missing;
  std::set_difference(has.begin(), has.end(), lacks.begin(), lacks.end(),
                      std::back_inserter(missing));
  if (missing.empty()) return;
  const bool one = missing.size() == 1;
  const std::string range = CommonRange(has, lacks);
  notes->push_back(
      {NoteKind::kNoSuchIteration,
       fmt::format("iteration{} {} {} missing in the {}", one ? "" : "s",
                   fmt::join(missing, ", "), one ? "is" : "are", lacking),
       fmt::format(
           "record the same iterations of both runs{}",
           range.empty() ? "" : ", or check what both have with " + range)});
}

std::set<int> IterationsOf(const Side& side,
                           const std::optional<IterationRange>& wanted) {
  std::set<int> out = side.RecordedIterations();
  std::erase_if(out, [&](int i) { return wanted && !wanted->contains(i); });
  return out;
}

// Dropout that is on, or was switched off: what that means for a comparison.
void NoteDropout(const DropoutFacts& theirs, const DropoutFacts& own,
                 Notes* notes) {
  std::string on = DropoutPreventsComparison(theirs, own);
  if (!on.empty()) notes->push_back({NoteKind::kDropout, std::move(on), ""});
  std::string off = DropoutIsOff(own);
  if (!off.empty())
    notes->push_back({NoteKind::kDropoutOff, std::move(off), ""});
}

// Of values that were computed with other random numbers nothing can be said.
void NoteUnlikeDraws(const JudgeOutcome& judged, Notes* notes) {
  const auto reached = std::count_if(
      judged.tensors.begin(), judged.tensors.end(),
      [](const auto& t) { return t.reason.kind == ReasonKind::kUnlikeDraws; });
  if (reached == 0) return;
  std::vector<std::string> modules;
  for (const std::string& module : judged.unlike_draws) {
    modules.push_back(module.empty() ? "the model itself" : module);
  }
  const auto count = static_cast<int64_t>(modules.size());
  notes->push_back(
      {NoteKind::kUnlikeDraws,
       fmt::format("{} draw{} random numbers in the forward, others in each "
                   "run ({}): {} computed with them cannot be compared",
                   Counted(count, "module"), count == 1 ? "s" : "",
                   Examples(modules, count), Counted(reached, "tensor")),
       "switch the random numbers off in both runs, or draw them in the loop "
       "and hand them to the model: its inputs are replaced by --graft"});
}

// Of a step that was skipped because of overflow, what overflowed elsewhere, or
// in one run only, tells nothing. One note for each iteration.
void NoteOverflow(const std::vector<TensorJudgement>& tensors, Notes* notes) {
  std::map<int, std::vector<const TensorJudgement*>> of;
  for (const TensorJudgement& t : tensors) {
    if (t.reason.kind == ReasonKind::kOverflow)
      of[t.id.iteration].push_back(&t);
  }
  for (const auto& [iteration, gradients] : of) {
    const TensorJudgement& first = *gradients.front();
    notes->push_back(
        {NoteKind::kOverflow,
         fmt::format("iteration {}: under the loss scale, {} beyond what fp16 "
                     "holds, at other elements in each run or in one alone, "
                     "and the step was skipped (first {} {}: {} elements, {} "
                     "in the reference)",
                     iteration,
                     gradients.size() == 1
                         ? "a gradient goes"
                         : fmt::format("{} gradients go", gradients.size()),
                     first.id.fqn, ToString(first.id.role),
                     first.reason.counts.at(0), first.reason.counts.at(1)),
         "capture an iteration whose step is made (--iterations), or start "
         "both runs with a smaller loss scale"});
  }
}

void NoteReplay(const JudgeOutcome& judged, Notes* notes) {
  const int64_t count = judged.not_repeatable;
  if (count == 0) return;
  const char* is = count == 1 ? "is" : "are";
  notes->push_back(
      {NoteKind::kNotRepeatable,
       fmt::format("{} of the candidate {} not reproduced bit by bit by a "
                   "rerun (by up to {}), the reference's {}; bounds do not "
                   "include that",
                   Counted(count, "tensor"), is,
                   FormatError(judged.largest_repeat), is),
       ""});
}

// What is padded has no gradient where nothing looks at it. The first that has
// one, in the order of execution.
void NotePadding(const std::vector<TensorJudgement>& tensors, Notes* notes) {
  const TensorJudgement* first = nullptr;
  int64_t count = 0;
  for (const TensorJudgement& t : tensors) {
    if (!(t.padding_gradient.largest() > 0)) continue;
    ++count;
    if (first == nullptr || t.order < first->order) first = &t;
  }
  if (first == nullptr) return;
  const PaddingGradient& gradient = first->padding_gradient;
  const bool own = gradient.candidate >= gradient.reference;
  notes->push_back(
      {NoteKind::kPaddingGradient,
       fmt::format("padding that the {} alone has takes part in what is "
                   "computed: {} has a gradient there, {:.2g} x that of the "
                   "data{}; mask it in attention, in means and statistics, and "
                   "in the loss",
                   own ? "candidate" : "reference", ToString(first->id),
                   own ? gradient.candidate : gradient.reference,
                   count > 1 ? fmt::format(", and {} more",
                                           Counted(count - 1, "tensor"))
                             : ""),
       ""});
}

void NoteSteps(const ReplayedSteps& reference, Notes* notes) {
  int64_t off = 0;
  const StepOfParameter* first = nullptr;
  for (const auto& [step, replayed] : reference) {
    if (!replayed.out()) continue;
    ++off;
    if (first == nullptr) first = &step;
  }
  if (off == 0) return;
  notes->push_back(
      {NoteKind::kNotice,
       fmt::format("of {} steps of the candidate's optimizer that are not what "
                   "its settings make of what it recorded, {} are not in the "
                   "reference either (first {}, iteration {})",
                   reference.size(), off, first->fqn, first->iteration),
       ""});
}

// One for each class and reason. Of a module one value may not be observed,
// while others are compared.
void NoteNotObserved(const Side& side, const std::set<std::string>& compared,
                     Notes* notes) {
  struct Modules {
    std::vector<std::string> names;
    std::string way_out;
  };
  std::map<std::pair<std::string, std::string>, Modules> found;
  for (const auto& [fqn, why] : side.facts().not_observed) {
    if (why.compiled) continue;
    Modules& modules = found[{why.of_class, why.reason}];
    modules.names.push_back(fqn);
    if (modules.way_out.empty()) modules.way_out = why.way_out;
  }
  for (auto& [of, modules] : found) {
    const auto count = static_cast<int64_t>(modules.names.size());
    modules.names.resize(std::min(kExamples, modules.names.size()));
    const bool partly = std::any_of(
        modules.names.begin(), modules.names.end(),
        [&](const std::string& name) { return compared.contains(name); });
    notes->push_back(
        {NoteKind::kNotObserved,
         fmt::format("{} not {}observed{}{} ({}): {}", Counted(count, "module"),
                     partly ? "wholly " : "",
                     of.first.empty() ? "" : ", class ", of.first,
                     Examples(modules.names, count), of.second),
         modules.way_out, side.trace().folder()});
  }
}

// Of all that follows nothing is known but what copies and steps show.
void NoteUnseenSteps(const std::vector<TensorJudgement>& tensors,
                     Notes* notes) {
  int64_t count = 0;
  int first = 0;
  for (const TensorJudgement& t : tensors) {
    if (t.id.role != Role::kParam ||
        t.reason.kind != ReasonKind::kUnequalStart) {
      continue;
    }
    ++count;
    first = t.id.iteration;
  }
  if (count == 0) return;
  notes->push_back(Unsupported(
      "a comparison that begins after steps that were not recorded",
      fmt::format("{} where iteration {} begins, and whether rounding made "
                  "them so cannot be told",
                  count == 1 ? "a parameter differs"
                             : fmt::format("{} parameters differ", count),
                  first),
      "record from iteration 0, or give the candidate the reference's weights "
      "(--graft weights)"));
}

}  // namespace

void Append(std::vector<RunNote> more, std::vector<RunNote>* notes) {
  notes->insert(notes->end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
}

std::vector<RunNote> NotesOnRuns(const OpenRuns& runs,
                                 const SettingsOfRuns& said) {
  const Side& candidate = *runs.candidate;
  Notes notes = candidate.notes();
  NoteDefects(candidate, &notes);
  if (!runs.reference) {
    Append(TwinNotes(candidate), &notes);
    return notes;
  }
  const Side& reference = *runs.reference;
  Append(reference.notes(), &notes);
  NoteDefects(reference, &notes);
  const auto& wanted = runs.context.iterations;
  const std::set<int> theirs = IterationsOf(reference, wanted);
  const std::set<int> own = IterationsOf(candidate, wanted);
  NoteMissingIterations(theirs, own, "candidate", &notes);
  NoteMissingIterations(own, theirs, "reference", &notes);
  CompareComputations(reference, candidate, &notes);
  NoteDropout(said.reference->dropout, said.candidate.dropout, &notes);
  Append(runs.plan_notes, &notes);
  Append(RowNotes(reference, candidate, runs.context.rows), &notes);
  return notes;
}

std::vector<RunNote> NotesOnTensors(const OpenRuns& runs,
                                    const JudgeOutcome& judged,
                                    const ReplayedSteps& reference_steps) {
  Notes notes;
  NoteUnlikeDraws(judged, &notes);
  NoteOverflow(judged.tensors, &notes);
  NoteReplay(judged, &notes);
  NotePadding(judged.tensors, &notes);
  NoteSteps(reference_steps, &notes);
  NoteUnseenSteps(judged.tensors, &notes);
  std::set<std::string> compared;
  for (const TensorJudgement& t : judged.tensors) {
    if (t.verdict != TensorVerdict::kUnmatched) compared.insert(t.id.fqn);
  }
  NoteNotObserved(*runs.candidate, compared, &notes);
  if (runs.reference) NoteNotObserved(*runs.reference, compared, &notes);
  return notes;
}

void NoteDamage(const Side& side, DamagedNumbers damaged,
                std::vector<RunNote>* notes) {
  AddDamage(side.trace(), &damaged);
  if (damaged.empty()) return;
  std::string text = damaged.begin()->second;
  if (damaged.size() > 1) {
    text += fmt::format(
        "; {} more like it",
        Counted(static_cast<int64_t>(damaged.size()) - 1, "tensor"));
  }
  notes->push_back({NoteKind::kDamage, std::move(text), "record it again"});
}

}  // namespace ttrace
