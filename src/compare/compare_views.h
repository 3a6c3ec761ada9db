// Compares one tile of two instances, both in memory.
//
// Thread safety: pure function of its arguments.

#ifndef TTRACE_SRC_COMPARE_COMPARE_VIEWS_H_
#define TTRACE_SRC_COMPARE_COMPARE_VIEWS_H_

#include "src/compare/error_sums.h"
#include "src/compare/tile.h"
#include "src/compare/tile_reader.h"

namespace ttrace {

// Adds the statistics of the tile's elements to `sums`. `element_scale`:
// CompareOptions.
void CompareViews(const Tile& tile, const BlockView& ref, const BlockView& cand,
                  double element_scale, ErrorSums* sums);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARE_VIEWS_H_
