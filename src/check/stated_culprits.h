// Places that runs name themselves, among those that values name: what they
// drew, what they were told, and what they changed between steps.
//
// Thread safety: for one thread.

#ifndef TTRACE_SRC_CHECK_STATED_CULPRITS_H_
#define TTRACE_SRC_CHECK_STATED_CULPRITS_H_

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/audit/hyperparameter_faults.h"
#include "src/check/open_runs.h"
#include "src/check/run_settings.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/side.h"
#include "src/localize/culprit.h"
#include "src/report/check_result.h"

namespace ttrace {

// Masks that dropout should not have drawn.
void AddDropoutFaults(const OpenRuns& runs, const SettingsOfRuns& settings,
                      const std::optional<IterationRange>& iterations,
                      CheckResult* result);

// Settings of the optimizer. `excused_factors`: Standing::excused_factors.
void AddHyperparameterFaults(HyperparameterFaults settings,
                             bool excused_factors, CheckResult* result);

// What one run changes beside its optimizer, and the other does not.
void AddStateFaults(const Side& reference, const Side& candidate,
                    const std::optional<IterationRange>& iterations,
                    CheckResult* result);

// Parameters that one run alone trains. Where values have shown it already,
// nothing is added.
void AddAbsentGradients(const Side& reference, const Side& candidate,
                        const std::optional<IterationRange>& iterations,
                        CheckResult* result);

// A gradient that was not emptied (StateFaults::kept) is a term of what
// backward and a reduction make of it: what is out of bounds there, and has no
// class of its own that says otherwise, is laid to the culprit that says so.
void FoldIntoKeptGradients(const std::set<std::pair<int, std::string>>& kept,
                           std::vector<Culprit>* culprits);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_STATED_CULPRITS_H_
