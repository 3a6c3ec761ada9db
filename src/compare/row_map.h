// RowMap: where the rows of a batch are in the other run, and layouts moved
// there.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_COMPARE_ROW_MAP_H_
#define TTRACE_SRC_COMPARE_ROW_MAP_H_

#include <cstdint>
#include <vector>

#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

// Permutation of the candidate's batch rows by content: candidate row i of the
// global batch is reference row to_reference[i].
struct RowMap {
  std::vector<int64_t> to_reference;
};

// Replaces the segments of dimension `dim` by those of the mapped rows, in the
// same local order; each may be several indices of the dimension, one after the
// other. Fails with kInvalidArgument if `map` is no permutation, or the
// dimension's size no multiple of its rows.
Status MapRows(const RowMap& map, int dim, Layout* layout);

// The same for a dimension of tokens, which are numbered row by row. Fails with
// kInvalidArgument also if its size is no multiple of the number of rows.
Status MapTokens(const RowMap& map, DimLayout* tokens);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_ROW_MAP_H_
