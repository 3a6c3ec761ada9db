// What factor the gradients of two runs have in common, before they are reduced
// and as they are stepped.
//
// One factor of all parameters shows in a part of each: in the first elements,
// or where values were not kept in those that were (kept_sample.h).
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_GRADIENT_FACTORS_H_
#define TTRACE_SRC_EXPERIMENT_GRADIENT_FACTORS_H_

#include <optional>
#include <vector>

#include "src/experiment/iteration_range.h"
#include "src/experiment/side.h"

namespace ttrace {

// What most parameters of an iteration have in common. Factors are the
// candidate's over the reference's.
struct GradientFactors {
  int iteration = 0;
  double before = 1;   // of gradients as backward leaves them
  double stepped = 1;  // of the same as the optimizer steps with them
  // stepped / before, which is of one run beside the other, whatever is wrong
  // with what both gradients were computed from; and how far it may be off,
  // relative.
  double step = 1;
  double step_tolerance = 0;
  double before_tolerance = 0;  // the same of `before`
  int parameters = 0;           // that were looked at
  int alike = 0;                // that have `step`
};

// Looks at some values of some parameters. An iteration is left out if nothing
// can be said of it.
std::vector<GradientFactors> ReadGradientFactors(
    const Side& reference, const Side& candidate,
    const std::optional<IterationRange>& iterations);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_GRADIENT_FACTORS_H_
