// Moves a layout's batch rows to where a RowMap says their content is.

#ifndef TTRACE_SRC_COMPARE_ROW_MAP_H_
#define TTRACE_SRC_COMPARE_ROW_MAP_H_

#include "src/compare/compare_tensor.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

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
