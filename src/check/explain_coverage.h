// What was compared, what had no partner, and which of that is as it should be.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_CHECK_EXPLAIN_COVERAGE_H_
#define TTRACE_SRC_CHECK_EXPLAIN_COVERAGE_H_

#include <set>
#include <vector>

#include "src/experiment/side.h"
#include "src/report/check_result.h"

namespace ttrace {

// Marks unmatched tensors that have a good reason as explained, and counts.
// `reference` may be null. `listed`: items of lists (BatchReadings::listed).
Coverage ExplainCoverage(const Side* reference, const Side& candidate,
                         const std::set<TensorId>& listed,
                         std::vector<TensorJudgement>* tensors);

// Clean of all, by kind: forward, backward, gradients, update.
std::vector<CleanCount> CountClean(const std::vector<TensorJudgement>& tensors);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_EXPLAIN_COVERAGE_H_
