// Where the batch lies in values whose shape leaves it open.
//
// Capture of plain torch knows a value's batch dimension by its size alone: the
// one that counts the rows of the micro-batch. That is wrong of a value that is
// the same for all rows and has that size by chance (positions of shape [1, T]
// beside micro-batches of one row), and says nothing of one whose rows and
// sequence were flattened into one dimension. Two runs that cut the batch
// differently settle it: what is flattened has the same number of elements a
// row in both, what does not depend on the batch has the same shape. Where
// captures say what each forward was fed, that goes first (fed_dimensions.h).
//
// Thread safety: pure but for the sides, which must not be in use elsewhere.

#ifndef TTRACE_SRC_EXPERIMENT_BATCH_READINGS_H_
#define TTRACE_SRC_EXPERIMENT_BATCH_READINGS_H_

#include <set>

#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

struct BatchReadings {
  // Inputs and outputs that depend on the batch in a way that nothing explains,
  // with their gradients: they cannot be compared.
  std::set<TensorId> unknown;
  // Data and inputs that are items of a list, each a row: whose row each is was
  // found by what it holds.
  std::set<TensorId> listed;
  // Those of which one run may hold more than the other: padding.
  std::set<TensorId> padded;
};

// Gives data, activations and their gradients, in all legs of both sides, the
// layout that fits both.
BatchReadings ResolveBatchDim(Side* reference, Side* candidate,
                              const RowAlignment& rows);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_BATCH_READINGS_H_
