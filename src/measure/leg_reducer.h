// LegReducer: measures a noise leg where it runs, so that only what it differs
// by from the leg that it perturbs is written (CellTable).
//
// The same comparison that a check makes of stored values, and the same
// numbers. Values are written of what no rank can judge alone: pieces of which
// others hold the rest, terms of sums, rows that a router chose; and of what is
// small anyway.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_MEASURE_LEG_REDUCER_H_
#define TTRACE_SRC_MEASURE_LEG_REDUCER_H_

#include <memory>
#include <string>
#include <vector>

#include "src/trace/writer.h"

namespace ttrace {

// For a rank that lies in the mesh of `meta` and will run `legs`: what none of
// them is measured against is not kept in mind.
std::unique_ptr<Reducer> MakeLegReducer(const RankMeta& meta,
                                        const std::vector<std::string>& legs);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_LEG_REDUCER_H_
