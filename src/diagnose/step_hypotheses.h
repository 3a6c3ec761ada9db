// Which other step explains what a parameter's step left behind. Each way to
// step wrongly is tried on a sample of elements, by the same formulas and the
// same bounds: one that explains them all is named.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_DIAGNOSE_STEP_HYPOTHESES_H_
#define TTRACE_SRC_DIAGNOSE_STEP_HYPOTHESES_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "src/localize/bug_class.h"
#include "src/step/replayed_step.h"

namespace ttrace {

struct StepExplanation {
  BugClass bug_class = {};
  std::string words;  // "a step without weight decay (0.1 by its settings)"
  double value = std::numeric_limits<double>::quiet_NaN();
  int64_t wrong = 0;      // elements of the sample that it explains
  bool of_count = false;  // that steps are counted otherwise
};

// `decays`: weight decays of other parameters of the run. Nothing where no
// hypothesis explains 99 of 100 elements, of the wrong ones and of the others,
// or where too few are wrong to tell.
std::optional<StepExplanation> ExplainStep(const StepSample& sample,
                                           const std::vector<double>& decays);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_STEP_HYPOTHESES_H_
