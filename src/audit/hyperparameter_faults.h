// Hyperparameters that differ between the runs, parameter by parameter.
//
// No tolerance is involved: an optimizer that is told another learning rate
// computes another update, whether or not two iterations show it.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_AUDIT_HYPERPARAMETER_FAULTS_H_
#define TTRACE_SRC_AUDIT_HYPERPARAMETER_FAULTS_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/experiment/iteration_range.h"
#include "src/localize/culprit.h"
#include "src/step/hyperparameters.h"

namespace ttrace {

struct HyperparameterFaults {
  std::vector<Culprit> culprits;  // class H, earliest first
  std::vector<std::string> notes;
  // Iterations in which gradients of one side were recorded before clipping,
  // and of the other behind a change of its loop's own, which may be clipping.
  // A factor between them says nothing.
  std::set<int> unlike_gradients;
  // Iterations in which gradients of one side alone were recorded before the
  // last backward had added to them. A difference of them says nothing.
  std::set<int> incomplete_gradients;
};

// Compares what both sides noted for the same parameter and iteration. Without
// a reference only ranks of the candidate are compared with each other. What
// only one side noted is no fault.
HyperparameterFaults FindHyperparameterFaults(
    const Hyperparameters* reference, const Hyperparameters& candidate,
    const std::optional<IterationRange>& iterations = std::nullopt);

}  // namespace ttrace

#endif  // TTRACE_SRC_AUDIT_HYPERPARAMETER_FAULTS_H_
