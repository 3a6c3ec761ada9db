// Which rows of the global batch are the same samples.
//
// A row's place follows from the sampler's rule (micro-batch and data-parallel
// rank). Here it is verified by content: the key of a row is what the model was
// fed for it, and the number of its occurrence. Where the same rows come in
// another order, the candidate's rows are mapped; where they are other rows,
// they are named.
//
// Thread safety: const after FindRows.

#ifndef TTRACE_SRC_EXPERIMENT_ROW_ALIGNMENT_H_
#define TTRACE_SRC_EXPERIMENT_ROW_ALIGNMENT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/side.h"

namespace ttrace {

struct RowAlignment {
  std::map<int, RowMap> by_iteration;  // identity where absent
  // Iteration -> rows of the candidate that the reference does not have.
  std::map<int, std::vector<int64_t>> foreign;

  CompareOptions OptionsFor(int iteration) const;
};

// Looks at the inputs of the model's root, in `iterations` or in all. Fails if
// they cannot be read.
Result<RowAlignment> FindRows(
    const Side& reference, const Side& candidate,
    const std::optional<IterationRange>& iterations = std::nullopt);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ROW_ALIGNMENT_H_
