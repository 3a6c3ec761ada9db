// Parameters that one run trains and the other does not: its optimizer finds no
// gradient of them (None), where the other's is not zero.
//
// No tolerance is involved. A parameter whose module did not run has no
// gradient for a reason that lies elsewhere, in the data or in a router: it is
// not judged.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_AUDIT_GRADIENT_FAULTS_H_
#define TTRACE_SRC_AUDIT_GRADIENT_FAULTS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/experiment/gradients_not_found.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/run_facts.h"
#include "src/localize/culprit.h"

namespace ttrace {

// What a run says of the gradients that its steps find.
struct StepGradients {
  const GradientsNotFound* absent = nullptr;
  // Of what backward brought, as notes have it: GradientNorm by (rank,
  // iteration, parameter).
  const std::map<std::tuple<int, int, std::string>, GradientNorm>* norms =
      nullptr;
};

// (iteration, module): those that ran in both runs.
using ModulesThatRan = std::set<std::pair<int, std::string>>;

// At most one culprit (class M): of the first iteration where there is any.
std::vector<Culprit> FindAbsentGradients(
    const StepGradients& reference, const StepGradients& candidate,
    const ModulesThatRan& ran, const std::optional<IterationRange>& iterations);

}  // namespace ttrace

#endif  // TTRACE_SRC_AUDIT_GRADIENT_FAULTS_H_
