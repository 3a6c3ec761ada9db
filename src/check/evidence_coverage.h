// Whether every kind of computation was judged somewhere.
//
// "Within" must rest on evidence: for each role of each class of module (the
// outputs of all linears, the reduced gradients of all norm weights, ...) at
// least one tensor must have been judged against a bound, and not be zero. A
// gradient that is exactly zero on both sides would also be so without its
// all-reduce. The same holds of each module, for what it makes itself: one that
// is judged nowhere is a place where anything may go wrong.
//
// A tensor without elements, the same on both sides, is neither evidence nor a
// gap; nor is a gradient of zero for the input of a module that returns only
// such tensors, or for an input of the model itself: that of a penalty on the
// slope of a network of ReLUs is zero, and no parameter's is made of it.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_CHECK_EVIDENCE_COVERAGE_H_
#define TTRACE_SRC_CHECK_EVIDENCE_COVERAGE_H_

#include <vector>

#include "src/experiment/run_note.h"
#include "src/experiment/side.h"
#include "src/judge/judgement.h"

namespace ttrace {

struct EvidenceCoverage {
  bool any = false;  // something that was computed was judged
  // One for each kind without evidence, kNoEvidence or kZeroEvidence, and one
  // for all modules without.
  std::vector<RunNote> missing;
};

// `classes`: names the classes of modules; usually the candidate's side.
EvidenceCoverage CoverEvidence(const Side& classes,
                               const std::vector<TensorJudgement>& tensors);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_EVIDENCE_COVERAGE_H_
