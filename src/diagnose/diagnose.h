// From evidence to classes of bugs. Each rule is a unit of its own that returns
// one Diagnosis or nothing: a rule whose evidence is weak says nothing.
//
// Thread safety: pure functions of what they point to.

#ifndef TTRACE_SRC_DIAGNOSE_DIAGNOSE_H_
#define TTRACE_SRC_DIAGNOSE_DIAGNOSE_H_

#include <optional>
#include <vector>

#include "src/diagnose/evidence.h"

namespace ttrace {

// N: non-finite values where the reference has none.
std::optional<Diagnosis> NonFinite(const Evidence& evidence);
// M: all zero where the reference is not.
std::optional<Diagnosis> MissingValue(const Evidence& evidence);
// K: a constant factor, and which product of mesh sizes and micro-batch counts
// it equals.
std::optional<Diagnosis> ConstantFactor(const Evidence& evidence);
// P: a missing partial sum.
std::optional<Diagnosis> MissingPartialSum(const Evidence& evidence);
// R: copies of one value differ.
std::optional<Diagnosis> ReplicasDiffer(const Evidence& evidence);
// W: rows of a lookup come from rows of the table that do not belong there.
std::optional<Diagnosis> WrongTableRow(const Evidence& evidence);
// Z: other inputs or other initial weights.
std::optional<Diagnosis> OtherInputs(const Evidence& evidence);
// G: the gradient norm is not the norm of the gradients.
std::optional<Diagnosis> WrongGradNorm(const Evidence& evidence);
// L: only the loss differs, every activation is right.
std::optional<Diagnosis> LossNormalisation(const Evidence& evidence);

// All that hold, most certain first.
std::vector<Diagnosis> Diagnose(const Evidence& evidence);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_DIAGNOSE_H_
