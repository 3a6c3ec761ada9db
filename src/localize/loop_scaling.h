// A factor that the loop itself puts on gradients, after they were reduced, or
// where it reduces them itself.
//
// A loop that clips by a function of its own, or divides by what it counts,
// multiplies all gradients between the backward and the step. Where that goes
// wrong the stepped gradients have one factor, which looks as a reduction does
// that is wrong by it. But a reduction is made by parameter, and this factor is
// one of all of them; and capture saw that the loop changed them there.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_LOCALIZE_LOOP_SCALING_H_
#define TTRACE_SRC_LOCALIZE_LOOP_SCALING_H_

#include <vector>

#include "src/experiment/loss_unit.h"
#include "src/localize/culprit.h"
#include "src/step/hyperparameters.h"

namespace ttrace {

// Of culprits that are a factor of reduced gradients (class K), says so of
// those whose factor is that of all.
void NameLoopScaling(const std::vector<GradientFactors>& factors,
                     const Hyperparameters& candidate,
                     std::vector<Culprit>* culprits);

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_LOOP_SCALING_H_
