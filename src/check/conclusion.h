// From everything that was found to the verdict of the run.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_CHECK_CONCLUSION_H_
#define TTRACE_SRC_CHECK_CONCLUSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/check/evidence_coverage.h"
#include "src/judge/reason.h"
#include "src/report/check_result.h"

namespace ttrace {

struct Conclusion {
  Verdict verdict = Verdict::kInconclusive;
  std::string reason;
};

// What decides the verdict beside the result itself.
struct ConclusionInput {
  EvidenceCoverage evidence;       // with a reference
  int64_t replica_groups = 0;      // how many values with copies were compared
  int64_t replayed_steps = 0;      // of parameters that were judged as a whole
  std::optional<Reason> step_gap;  // why one that could not be was not
};

// Reads all of `result` but its verdict and reason; of its notes those that
// leave the verdict open.
Conclusion Conclude(const CheckResult& result, const ConclusionInput& input);

// What to do with the verdict that `result` has.
std::vector<std::string> NextSteps(const CheckResult& result);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_CONCLUSION_H_
