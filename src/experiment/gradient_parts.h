// What ranks and micro-batches add to a parameter's gradient: how large those
// parts are. Each is rounded by itself, so that a gradient whose parts cancel
// is rounded as they are, not as what is left of them (docs/tolerance.md, "Sums
// of gradients").

#ifndef TTRACE_SRC_EXPERIMENT_GRADIENT_PARTS_H_
#define TTRACE_SRC_EXPERIMENT_GRADIENT_PARTS_H_

#include <map>

#include "src/experiment/rounding.h"
#include "src/experiment/side.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// By local gradient of the real leg, as recorded values are meant. Not of those
// of which a rank noted nothing.
//
// Thread safety: pure function.
std::map<TensorId, GradientParts> PartsOfGradients(const Side& side);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_GRADIENT_PARTS_H_
