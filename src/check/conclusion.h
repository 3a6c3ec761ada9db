// From everything that was found to the verdict of the run.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_CHECK_CONCLUSION_H_
#define TTRACE_SRC_CHECK_CONCLUSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/report/check_result.h"

namespace ttrace {

struct Conclusion {
  Verdict verdict = Verdict::kInconclusive;
  std::string reason;
};

// `defects`: of either trace, each enough to leave the verdict open.
// `replica_groups`: how many values with copies were compared. Reads all of
// `result` but its verdict and reason.
Conclusion Conclude(const CheckResult& result,
                    const std::vector<std::string>& defects,
                    int64_t replica_groups);

// What to do with the verdict that `result` has.
std::vector<std::string> NextSteps(const CheckResult& result);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_CONCLUSION_H_
