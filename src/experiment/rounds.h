// Which chunk of the model a rank of a pipeline works on, from the order of its
// micro-batches.
//
// A stage with virtual ones holds several chunks of the model. It takes its
// first micro-batches through one of them, then through the next, and backward
// so from the last: a rank that comes back to its first micro-batch has begun
// with another chunk. A round is what lies between two such moments. Where
// there are no virtual stages there is one round.
//
// With a single micro-batch nothing tells chunks apart, and all is one round.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_EXPERIMENT_ROUNDS_H_
#define TTRACE_SRC_EXPERIMENT_ROUNDS_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "src/align/catalog.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

class Rounds {
 public:
  // Of the tensors of one leg.
  explicit Rounds(const std::map<TensorId, TensorPieces>& tensors);

  // Counted from 0, within an iteration's forward or backward. 0 for what is in
  // neither.
  int Of(const Record& record) const;

 private:
  using Run = std::tuple<int, int, bool>;  // rank, iteration, backward

  std::map<Run, std::vector<int64_t>> begins_;  // sequence numbers, ascending
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ROUNDS_H_
