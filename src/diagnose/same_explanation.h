// One cause, several culprits: parameters are told apart by name where their
// gradients are wrong one by one, and a fault in what handles all of them (a
// buffer that is not cleared, gradients that are overwritten) then shows as a
// culprit for each kind of parameter. Their explanations say that it is one.
//
// Several causes, one culprit: where a step handles all parameters, those that
// are wrong after it are taken for one. Their explanations say where that
// fails.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_SAME_EXPLANATION_H_
#define TTRACE_SRC_DIAGNOSE_SAME_EXPLANATION_H_

#include <functional>
#include <vector>

#include "src/localize/culprit.h"

namespace ttrace {

// Joins later culprits to the first one with the same role, direction, stage,
// iteration and first class. A factor (class K) must be the same one, within
// 1 %. Culprits of modules, and those that nothing explains, stay apart.
// Returns how many were joined to another.
int JoinSameExplanation(std::vector<Culprit>* culprits);

// Calls `explain` on a culprit. Where it stands for parameters of several
// names, that one cause was an assumption: each name is explained by itself,
// and those whose explanation has no class in common with the first, or
// another factor, become culprits of their own. What nothing explains stays
// where it was.
std::vector<Culprit> ExplainEachName(
    Culprit culprit, const std::function<void(Culprit*)>& explain);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_SAME_EXPLANATION_H_
