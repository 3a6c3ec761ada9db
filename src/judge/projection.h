// A common factor on a whole tensor: the projection of the candidate on the
// reference, beside the norm, which sees a factor of 1.001 only where noise is
// smaller than that.
//
// Errors of n elements that do not know of each other add up to a projection of
// noise / sqrt(n). But noise legs show 15 to 1,000 times as much: a rounded
// loss scale or softmax sum moves whole tensors. So what is expected is the
// legs' own projection, pooled over the layers of one role. Layers of one leg
// share such a factor, hence there are no more degrees of freedom than legs.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_JUDGE_PROJECTION_H_
#define TTRACE_SRC_JUDGE_PROJECTION_H_

#include <vector>

#include "src/compare/error_stats.h"
#include "src/judge/rule.h"

namespace ttrace {

// |<other, ref> / <ref, ref> - 1|; 0 for an all-zero reference.
double CommonFactorError(const ErrorStats& stats);

// Mean square of the noise legs' projections, per tensor.
double MeanSquareProjection(const std::vector<ErrorStats>& noise);

// Adds the projection's test to what JudgeLeg(errors) gave, unless there is no
// noise or the reference is zero. `pooled`: the mean of MeanSquareProjection
// over the layers of the tensor's role, the tensor itself included.
void JudgeProjection(const LegErrors& errors, double pooled, LegJudgement* leg);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_PROJECTION_H_
