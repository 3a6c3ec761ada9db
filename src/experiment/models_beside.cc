#include "src/experiment/models_beside.h"

#include <algorithm>

namespace ttrace {

int64_t ModelsBeside(const Side& reference, const Side& candidate) {
  return std::max(reference.facts().models_beside,
                  candidate.facts().models_beside);
}

bool IsMadeByTheLoop(const TensorId& id) {
  return id.role == Role::kLoss ||
         (id.role == Role::kGradOutput && id.fqn.empty());
}

}  // namespace ttrace
