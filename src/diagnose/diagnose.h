// From evidence to classes of bugs, by the rules of src/diagnose/rules.
//
// Thread safety: pure functions of what they point to.

#ifndef TTRACE_SRC_DIAGNOSE_DIAGNOSE_H_
#define TTRACE_SRC_DIAGNOSE_DIAGNOSE_H_

#include <optional>
#include <string>
#include <vector>

#include "src/diagnose/evidence.h"

namespace ttrace {

// The classes that hold, most certain first, each once, at most three. One that
// an earlier one explains stands after it.
std::vector<Diagnosis> Diagnose(const Evidence& evidence);

// Whether what the loss sends into a model is wrong by its normalisation, and
// by nothing else.
std::optional<Diagnosis> DiagnoseLoss(const Evidence& evidence);

// What of a wrong step is wrong, and on which ranks, in words.
std::string StepHint(const ReplayedStep& step);
}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_DIAGNOSE_H_
