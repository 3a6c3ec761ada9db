// First divergence by dataflow: a tensor is where an error starts when it is
// out of bounds while everything it was made from is within.
//
//   forward   an output, while its module's inputs, parameters and children are
//             clean; an input, while nothing before it in the iteration is out
//             (then the code between two modules is to blame)
//   backward  a grad_input, while the gradients arriving at its module, its
//             forward values and children are clean: the consumer is blamed
//   gradients grad_local, while its module is clean: compute; grad_reduced,
//             while grad_local is clean: communication
//   update    parameters after the step, while their gradients are clean; the
//             gradient norm by its own rule
//
// Iterations are independent experiments when weights were grafted.
// Method: dataflow localisation of TTrace (arXiv 2506.09280), per rank order.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_LOCALIZE_DATAFLOW_H_
#define TTRACE_SRC_LOCALIZE_DATAFLOW_H_

#include <vector>

#include "src/experiment/fused_modules.h"
#include "src/judge/judgement.h"
#include "src/localize/culprit.h"

namespace ttrace {

struct LocalizeOptions {
  // The candidate's weights were put back to the reference's at the start of
  // each iteration.
  bool weights_grafted = false;
  bool data_grafted = false;  // likewise, what it reads
  bool bitwise = false;       // the tensors are judged by their bits
  FusedModules fused = {};    // of the candidate
};

struct Localization {
  std::vector<Culprit> culprits;  // earliest first
  int64_t downstream = 0;         // diverged tensors that are no culprit's own
};

// `tensors` sorted by TensorJudgement::order.
Localization Localize(const std::vector<TensorJudgement>& tensors,
                      const LocalizeOptions& options);

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_DATAFLOW_H_
