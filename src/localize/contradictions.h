// What speaks against a culprit, among all that was judged.
//
// A place is named by the tensor that shows it first. Other tensors may say
// that nothing is wrong there. A fault does not choose who sees it: where one
// piece of evidence contradicts another, a bound or a place is wrong, and
// nobody knows which. Such a culprit is no finding, and both are said.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_LOCALIZE_CONTRADICTIONS_H_
#define TTRACE_SRC_LOCALIZE_CONTRADICTIONS_H_

#include <vector>

#include "src/judge/judgement.h"
#include "src/localize/culprit.h"

namespace ttrace {

// Empty if nothing does.
std::vector<Contradiction> Contradicting(
    const Culprit& culprit, const std::vector<TensorJudgement>& tensors);

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_CONTRADICTIONS_H_
