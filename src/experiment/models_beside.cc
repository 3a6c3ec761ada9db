#include "src/experiment/models_beside.h"

#include <algorithm>

namespace ttrace {

int64_t ModelsBeside(const Side& reference, const Side& candidate) {
  int64_t out = 0;
  for (const Side* side : {&reference, &candidate}) {
    for (const RunNote& note : side->notes()) {
      if (note.kind == NoteKind::kModulesBeside) {
        out = std::max(out, note.count);
      }
    }
  }
  return out;
}

bool IsMadeByTheLoop(const TensorId& id) {
  return id.role == Role::kLoss ||
         (id.role == Role::kGradOutput && id.fqn.empty());
}

}  // namespace ttrace
