// What a run and its tensors are, for who shows them beside their verdicts.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_CHECK_DESCRIBE_RUN_H_
#define TTRACE_SRC_CHECK_DESCRIBE_RUN_H_

#include <vector>

#include "src/experiment/side.h"
#include "src/report/check_result.h"

namespace ttrace {

SideSummary DescribeSide(const Side& side);

// Of each tensor its form, in the candidate's real leg, or, where that has not
// got it, in the reference's. `reference` may be null.
std::vector<TensorForm> FormsOf(const std::vector<TensorJudgement>& tensors,
                                const Side* reference, const Side& candidate);

// Those of which the run noted a class.
std::vector<ModuleSummary> ModulesOf(const Side& side);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_DESCRIBE_RUN_H_
