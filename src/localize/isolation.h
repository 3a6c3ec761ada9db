// Faulty places by isolation: from the verdicts of the isolated legs.
//
// There every module computes from the reference's values, forward and
// backward, so an error never crosses a module and what is out of bounds was
// made right there:
//
//   output         the module, if nothing below it is out
//   grad_input     the module, backward, if nothing below it and nothing that
//                  it computed forward is out
//   grad_local     the parameter, if its module is not out
//   grad_reduced   the parameter, communication, if its grad_local is not out
//   loss           the loss, if the model's own outputs are not out
//   input, grad_output (edges, recorded before they are replaced)
//                  the code between two named points of the containing module,
//                  if what the modules before it in there computed is not out
//
// A container is made of its children and the code between them. Its own input
// is replaced, so that its residual sums start clean, and it is named only if
// nothing below it is out.
//
// Several faults of one run are found side by side. Parameters are told apart
// by name where their own gradient is wrong, but not where a reduction is: one
// missing reduction hits many.
//
// Method: input rewriting of TTrace (arXiv 2506.09280), extended to gradients
// and to the code between modules.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_LOCALIZE_ISOLATION_H_
#define TTRACE_SRC_LOCALIZE_ISOLATION_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/experiment/escaped_parameters.h"
#include "src/experiment/fused_modules.h"
#include "src/judge/judgement.h"
#include "src/localize/culprit.h"

namespace ttrace {

struct IsolationOutcome {
  std::vector<Culprit> culprits;  // earliest first, found_by "isolation"
  int64_t of = 0;                 // tensors that an isolated leg has
  int64_t judged = 0;             // of these, judged in isolation
  // Out of bound by its own fault -> index into `culprits`.
  std::map<TensorId, size_t> blamed;
  // Out of bound, but because of a culprit or of something that could not be
  // isolated.
  std::set<TensorId> explained;
  double worst_clean = 0;  // largest headroom of what is within its bound
};

// `tensors` sorted by TensorJudgement::order; the rest is the candidate's.
IsolationOutcome LocalizeIsolated(
    const std::vector<TensorJudgement>& tensors,
    const EscapedParameters& escaped_parameters = {},
    const FusedModules& fused = {});

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_ISOLATION_H_
