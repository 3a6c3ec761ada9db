// Whether what a rank holds has to be added to what others hold, or to its own
// of other micro-batches.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_MEASURE_TERM_OF_SUM_H_
#define TTRACE_SRC_MEASURE_TERM_OF_SUM_H_

#include <algorithm>
#include <variant>

#include "ttrace/layout.h"
#include "ttrace/mesh.h"

namespace ttrace {

// `alone`: the rank is known to have no other piece of the tensor, so that
// there is nothing to add over micro-batches.
inline bool IsTermOfSum(const DeviceMesh& mesh, const PlacementMap& placements,
                        bool alone) {
  return std::any_of(
      placements.begin(), placements.end(), [&](const auto& placed) {
        if (!std::holds_alternative<Partial>(placed.second)) return false;
        const int dim = mesh.Find(placed.first);
        return dim < 0 ? !alone : mesh.dims[static_cast<size_t>(dim)].size > 1;
      });
}

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_TERM_OF_SUM_H_
