#include "src/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>

#include "src/check/conclusion.h"
#include "src/check/diagnostician.h"
#include "src/check/explain_coverage.h"
#include "src/diagnose/same_explanation.h"
#include "src/experiment/handed_out.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/leg_plan.h"
#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"
#include "src/judge/judge_tensors.h"
#include "src/localize/agreement.h"
#include "src/localize/dataflow.h"
#include "src/localize/isolation.h"

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

// The iterations of `side` that are to be judged. Fails if there are none but
// some were asked for.
Result<std::vector<int>> SelectIterations(
    const Side& side, const std::optional<IterationRange>& wanted) {
  const std::set<int> all = side.Iterations();
  std::vector<int> out;
  std::copy_if(all.begin(), all.end(), std::back_inserter(out),
               [&](int i) { return !wanted || wanted->contains(i); });
  if (wanted && out.empty()) {
    return Error(
        ErrorCode::kNotFound,
        all.empty()
            ? fmt::format("{} holds no iteration", side.trace().folder())
            : fmt::format("{} holds no iteration of {}:{}; its first "
                          "is {}, its last {}",
                          side.trace().folder(), wanted->begin, wanted->end,
                          *all.begin(), *all.rbegin()));
  }
  return out;
}

void NameForeignRows(const RowAlignment& rows,
                     std::vector<TensorJudgement>* tensors) {
  for (TensorJudgement& t : *tensors) {
    const bool fed = t.id.role == Role::kData ||
                     (t.id.role == Role::kInput && t.id.fqn.empty());
    if (!t.diverged() || !fed) continue;
    const auto found = rows.foreign.find(t.id.iteration);
    if (found == rows.foreign.end()) continue;
    const size_t shown = std::min<size_t>(16, found->second.size());
    t.reason += fmt::format(
        "{}rows {}{} of the global batch are not the reference's",
        t.reason.empty() ? "" : "; ",
        fmt::join(found->second.begin(),
                  found->second.begin() + static_cast<std::ptrdiff_t>(shown),
                  ", "),
        shown < found->second.size() ? ", ..." : "");
  }
}

// The second way to a place, where the candidate has an isolated leg.
void JoinIsolation(Localization places, const HandedOut& handed_out,
                   CheckResult* result) {
  IsolationOutcome isolation = LocalizeIsolated(result->tensors, handed_out);
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
  result->notes.push_back(AgreementWords(isolation, agreement));
  result->culprits = std::move(agreement.culprits);
  result->downstream = agreement.downstream;
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

}  // namespace

Result<CheckResult> RunCheck(const CheckOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  CheckResult result;
  std::optional<Side> reference;
  if (!options.reference.empty()) {
    TTRACE_ASSIGN_OR_RETURN(
        reference, Side::Open(options.reference, options.reference_legs));
  }
  TTRACE_ASSIGN_OR_RETURN(
      const Side candidate,
      Side::Open(options.candidate, options.candidate_legs));

  result.has_reference = reference.has_value();
  result.candidate = Summarise(candidate);
  TTRACE_ASSIGN_OR_RETURN(result.iterations,
                          SelectIterations(candidate, options.iterations));
  std::vector<std::string> defects = candidate.defects();
  result.notes = candidate.notes();

  JudgeContext context;
  context.candidate = &candidate;
  context.iterations = options.iterations;
  context.threads = options.threads;
  context.progress = options.progress;
  if (reference) {
    TTRACE_RETURN_IF_ERROR(SelectIterations(*reference, options.iterations));
    context.reference = &*reference;
    result.reference = Summarise(*reference);
    defects.insert(defects.begin(), reference->defects().begin(),
                   reference->defects().end());
    result.notes.insert(result.notes.begin(), reference->notes().begin(),
                        reference->notes().end());
    LegPlans plans = PlanLegs(*reference, candidate);
    context.plans = std::move(plans.plans);
    result.notes.insert(result.notes.end(), plans.notes.begin(),
                        plans.notes.end());
    TTRACE_ASSIGN_OR_RETURN(
        context.rows, FindRows(*reference, candidate, options.iterations));
    for (const auto& [iteration, map] : context.rows.by_iteration) {
      result.notes.push_back(fmt::format(
          "iteration {}: the candidate sees the reference's rows in another "
          "order; they were matched by content",
          iteration));
    }
  }

  TTRACE_ASSIGN_OR_RETURN(auto judged, JudgeTensors(context));
  result.tensors = std::move(judged.tensors);
  result.bytes_compared = judged.bytes_compared;
  if (judged.not_repeatable > 0) {
    result.notes.push_back(
        fmt::format("{} tensors of the candidate are not reproduced bit by bit "
                    "by a replay; "
                    "their bounds include that difference",
                    judged.not_repeatable));
  }
  result.coverage = ExplainCoverage(reference ? &*reference : nullptr,
                                    candidate, &result.tensors);
  NameForeignRows(context.rows, &result.tensors);

  Localization places =
      Localize(result.tensors, {.weights_grafted = candidate.weights_grafted(),
                                .data_grafted = candidate.data_grafted()});
  JoinIsolation(std::move(places), candidate.handed_out(), &result);
  EnsureCulprit(&result);
  const Diagnostician diagnostician(reference ? &*reference : nullptr,
                                    candidate, context.plans, context.rows,
                                    result.tensors);
  for (Culprit& culprit : result.culprits) {
    diagnostician.Explain(&culprit);
  }
  if (const int joined = JoinSameExplanation(&result.culprits); joined > 0) {
    result.notes.push_back(
        fmt::format("{} more faulty place{} the explanation of another one, "
                    "with which they are counted",
                    joined, joined == 1 ? " has" : "s have"));
  }

  result.clean = CountClean(result.tensors);
  for (const TensorJudgement& t : result.tensors) {
    result.suspects +=
        t.verdict == TensorVerdict::kSuspect ||
        (t.judged_alone() && t.isolated->verdict == TensorVerdict::kSuspect);
    const bool too_wide =
        t.verdict == TensorVerdict::kNotCheckable && !t.explained;
    result.not_checkable += too_wide && !t.judged_alone();
    result.isolation.rescued += too_wide && t.judged_alone();
  }
  for (const std::string& defect : defects) result.notes.push_back(defect);
  const Conclusion conclusion =
      Conclude(result, defects, judged.replica_groups);
  result.verdict = conclusion.verdict;
  result.reason = conclusion.reason;
  result.next_steps = NextSteps(result);
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return result;
}

}  // namespace ttrace
