#include "src/check/open_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "src/experiment/batch_readings.h"
#include "src/experiment/loss_unit.h"

namespace ttrace {
namespace {

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

}  // namespace

Result<std::unique_ptr<const OpenRuns>> OpenRuns::Open(
    const CheckOptions& options) {
  auto runs = std::make_unique<OpenRuns>();
  RunContext& context = runs->context;
  if (!options.reference.empty()) {
    TTRACE_ASSIGN_OR_RETURN(
        runs->reference,
        Side::Open(options.reference, options.reference_legs, options.threads));
    if (options.legs) runs->reference->KeepLegs(*options.legs);
    if (options.bitwise) runs->reference->KeepLegs({});
    context.reference = &*runs->reference;
  }
  TTRACE_ASSIGN_OR_RETURN(
      runs->candidate,
      Side::Open(options.candidate, options.candidate_legs, options.threads));
  if (options.bitwise) runs->candidate->KeepLegs({});
  context.candidate = &*runs->candidate;
  TTRACE_ASSIGN_OR_RETURN(
      runs->iterations, SelectIterations(*runs->candidate, options.iterations));
  context.iterations = options.iterations;
  context.threads = options.threads;
  context.progress = options.progress;
  if (runs->reference) {
    TTRACE_RETURN_IF_ERROR(
        SelectIterations(*runs->reference, options.iterations));
    TTRACE_ASSIGN_OR_RETURN(
        context.rows,
        FindRows(*runs->reference, *runs->candidate, options.iterations));
    context.batch =
        ResolveBatchDim(&*runs->reference, &*runs->candidate, context.rows);
    LegPlans plans = PlanLegs(*runs->reference, *runs->candidate);
    context.plans = std::move(plans.plans);
    runs->plan_notes = std::move(plans.notes);
    runs->gradient_factors = ReadGradientFactors(
        *runs->reference, *runs->candidate, options.iterations);
    for (RunNote& note : SettleLossUnits(
             *runs->reference, runs->gradient_factors, &*runs->candidate)) {
      runs->plan_notes.push_back(std::move(note));
    }
  }
  return std::unique_ptr<const OpenRuns>(std::move(runs));
}

}  // namespace ttrace
