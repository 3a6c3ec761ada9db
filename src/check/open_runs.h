// The runs of a check, opened, with what has to be known of the two together
// before anything is measured. Indexes are read and, of tensors, what the model
// was fed and what shows where the batch lies.
//
// Thread safety: const after Open.

#ifndef TTRACE_SRC_CHECK_OPEN_RUNS_H_
#define TTRACE_SRC_CHECK_OPEN_RUNS_H_

#include <memory>
#include <optional>
#include <vector>

#include "src/check/check_options.h"
#include "src/experiment/loss_unit.h"
#include "src/experiment/run_note.h"
#include "src/experiment/side.h"
#include "src/measure/measure_run.h"
#include "ttrace/status.h"

namespace ttrace {

struct OpenRuns {
  // Fails with the Error of Trace::Open if a trace cannot be read, and with
  // kNotFound if a side has none of the iterations asked for.
  static Result<std::unique_ptr<const OpenRuns>> Open(
      const CheckOptions& options);

  OpenRuns() = default;
  OpenRuns(const OpenRuns&) = delete;
  OpenRuns& operator=(const OpenRuns&) = delete;

  std::optional<Side> reference;
  std::optional<Side> candidate;  // always there
  RunContext context;             // points into this object
  std::vector<int> iterations;    // that are judged
  std::vector<RunNote> plan_notes;
  std::vector<GradientFactors> gradient_factors;  // of the two runs
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_OPEN_RUNS_H_
