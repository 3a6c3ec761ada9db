// LegReducer: measures a noise leg where it runs, so that only what it differs
// by from the leg that it perturbs is written (CellTable).
//
// The same comparison that a check makes of stored values, and the same
// numbers. Of pieces of which other ranks hold the rest that takes a word of
// theirs (ElementScales): values are written where it is missing. They are also
// written of terms of sums, of rows that a router chose, of what has a scale,
// and of what is small anyway.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_IN_PLACE_LEG_REDUCER_H_
#define TTRACE_SRC_IN_PLACE_LEG_REDUCER_H_

#include <memory>
#include <string>
#include <vector>

#include "src/in_place/element_scales.h"
#include "src/trace/writer.h"
#include "ttrace/leg.h"

namespace ttrace {

// For a rank that lies in the mesh of `meta` and will run `legs`: what none of
// them is measured against is not kept in mind. `scales` is told of what the
// rank holds, and asked; null: one that no other rank tells anything.
std::unique_ptr<Reducer> MakeLegReducer(
    const RankMeta& meta, const std::vector<Leg>& legs,
    std::shared_ptr<ElementScales> scales = nullptr);

}  // namespace ttrace

#endif  // TTRACE_SRC_IN_PLACE_LEG_REDUCER_H_
