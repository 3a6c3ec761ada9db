// Models beside the one that is captured: averages of its weights, teachers,
// frozen references. What they make reaches the loss, and no leg replaces it or
// puts noise into it.
//
// Thread safety: pure.

#ifndef TTRACE_SRC_EXPERIMENT_MODELS_BESIDE_H_
#define TTRACE_SRC_EXPERIMENT_MODELS_BESIDE_H_

#include <cstdint>

#include "src/experiment/side.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// How many either run was seen to keep, of the model's own kind.
int64_t ModelsBeside(const Side& reference, const Side& candidate);

// Whether the loop itself makes it, of what the model returns and of whatever
// else there is: the loss, and the gradient that it sends into the model.
bool IsMadeByTheLoop(const TensorId& id);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_MODELS_BESIDE_H_
