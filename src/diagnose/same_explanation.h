// One cause, several culprits: parameters are told apart by name where their
// gradients are wrong one by one, and a fault in what handles all of them (a
// buffer that is not cleared, gradients that are overwritten) then shows as a
// culprit for each kind of parameter. Their explanations say that it is one.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_DIAGNOSE_SAME_EXPLANATION_H_
#define TTRACE_SRC_DIAGNOSE_SAME_EXPLANATION_H_

#include <vector>

#include "src/localize/culprit.h"

namespace ttrace {

// Joins later culprits to the first one with the same role, direction, stage,
// iteration and first class. A factor (class K) must be the same one, within
// 1 %. Culprits of modules, and those that nothing explains, stay apart.
// Returns how many were joined to another.
int JoinSameExplanation(std::vector<Culprit>* culprits);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_SAME_EXPLANATION_H_
