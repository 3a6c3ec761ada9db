// The parts of an iteration whose optimizers step in turn.
//
// What one optimizer steps is complete, and recorded as it finds it, before the
// forward that leads to what the next one steps. So a part ends where a forward
// was recorded behind a reduced gradient. An iteration with one step has one.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_EXPERIMENT_ITERATION_PARTS_H_
#define TTRACE_SRC_EXPERIMENT_ITERATION_PARTS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "src/align/catalog.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

class IterationParts {
 public:
  // Of the tensors of one leg.
  explicit IterationParts(const std::map<TensorId, TensorPieces>& tensors);

  // Which part of its iteration its rank recorded it in, counted from 0.
  int Of(const Record& record, int iteration) const;

 private:
  // By rank and iteration, the sequence numbers at which further parts begin.
  std::map<std::pair<int, int>, std::vector<int64_t>> begins_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ITERATION_PARTS_H_
