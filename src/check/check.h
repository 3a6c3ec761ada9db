// The check: two traces in, a CheckResult out. Prints nothing.

#ifndef TTRACE_SRC_CHECK_CHECK_H_
#define TTRACE_SRC_CHECK_CHECK_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/experiment/iteration_range.h"
#include "src/judge/constants.h"
#include "src/report/check_result.h"
#include "ttrace/status.h"

namespace ttrace {

struct CheckOptions {
  std::string reference;  // folder; empty: only what needs no reference
  std::string candidate;
  // Further trace folders of each side that hold one leg each (one launch per
  // leg): their records join those of the main folder.
  std::vector<std::string> reference_legs;
  std::vector<std::string> candidate_legs;
  // The optimizer steps that are judged; nothing: all that the candidate has.
  // Of others only what these are judged by is read (which weights an ungrafted
  // run starts from).
  std::optional<IterationRange> iterations;
  // How often a clean run may be flagged by chance, over all tests together.
  double risk = kRunRisk;
  int threads = 0;  // 0: as many as cores. The result does not depend on it.
  // Called now and then from any thread with (done, total) tensors.
  std::function<void(int64_t, int64_t)> progress;
};

// Fails with the Error of Trace::Open if a trace cannot be read, and with
// kNotFound if a side has none of the iterations asked for. Everything that can
// be said about readable traces is in the result.
Result<CheckResult> RunCheck(const CheckOptions& options);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_CHECK_H_
