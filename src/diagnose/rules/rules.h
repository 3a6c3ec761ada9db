// The rules: each is a unit of its own that returns one Diagnosis or nothing,
// because a rule whose evidence is weak says nothing. What each asks, and where
// its thresholds come from: docs/diagnosis.md.
//
// Thread safety: pure functions of what they are given; a view belongs to one
// thread.

#ifndef TTRACE_SRC_DIAGNOSE_RULES_RULES_H_
#define TTRACE_SRC_DIAGNOSE_RULES_RULES_H_

#include <optional>

#include "src/diagnose/evidence.h"
#include "src/diagnose/value_view.h"

namespace ttrace {

// N: non-finite values where the reference has none, or not those that it has.
std::optional<Diagnosis> NonFinite(const Evidence& evidence);
// M: zero where the reference is not, everywhere or in a part.
std::optional<Diagnosis> MissingValue(const ValueView& view);
// M: the candidate has the value and lacks its gradient.
std::optional<Diagnosis> AbsentGradient(const Evidence& evidence);
// K: a constant factor, and which product of sizes of the run it equals.
std::optional<Diagnosis> ConstantFactor(const ValueView& view);
// K: a parameter of the module is added more often than once, or not at all.
std::optional<Diagnosis> AddedParameter(const ValueView& view);
// P: a missing partial sum, and whose terms are missing, where the terms are
// somewhere.
std::optional<Diagnosis> MissingPartialSum(const ValueView& view);
// P: a partial sum was reduced: terms of micro-batches came after it.
std::optional<Diagnosis> ReducedEarly(const Evidence& evidence);
std::optional<Diagnosis> ClearedEarly(const Evidence& evidence);
// P: it looks like one of several terms, the others of which are nowhere.
std::optional<Diagnosis> LostTerms(const ValueView& view);
// W: a sum was seen to be made over other ranks than those that hold its terms.
std::optional<Diagnosis> WrongGroup(const Evidence& evidence);
// R: copies of one value differ.
std::optional<Diagnosis> ReplicasDiffer(const Evidence& evidence);
// S: it equals an earlier iteration's value.
std::optional<Diagnosis> OtherIteration(const ValueView& view);
// S: a parameter that some ranks did not update.
std::optional<Diagnosis> UnchangedParameter(const Evidence& evidence);
// S: a gradient is the reference's plus something that was there before.
std::optional<Diagnosis> Leftover(const ValueView& view);
// S, P, L: a gradient lacks micro-batches, or all of some ranks, or weights
// them otherwise.
std::optional<Diagnosis> MicroBatchTerms(const ValueView& view);
// X: a rank holds other rows of an expert than its router sent there.
std::optional<Diagnosis> MisroutedRows(const Evidence& evidence);
// X, W: rows of experts hold what other rows of the same router should hold.
std::optional<Diagnosis> MovedRows(const ValueView& view);
// X, W: tokens hold sums of rows that experts made for other tokens.
std::optional<Diagnosis> SummedRows(const ValueView& view);
// X, W, S: slices along a dimension equal other slices of the reference.
std::optional<Diagnosis> MovedSlices(const ValueView& view);
// W, Z: it equals another tensor of the reference.
std::optional<Diagnosis> OtherPlace(const ValueView& view);
// W: rows of a lookup come from rows of the table that do not belong there.
std::optional<Diagnosis> WrongTableRow(const ValueView& view);
// W: runs of a parameter's values are another's: a wrong place of a flat
// buffer.
std::optional<Diagnosis> FlatOffset(const ValueView& view);
// X: within each row the values stand in another order.
std::optional<Diagnosis> ReorderedWithinRows(const ValueView& view);
// K: each row is scaled by a factor of its own.
std::optional<Diagnosis> FactorOfEachRow(const ValueView& view);
// H: a module whose function depends on it is in evaluation mode on one side.
std::optional<Diagnosis> OtherMode(const Evidence& evidence);
// W: a layer it is in has another number, or another attribute that depends on
// its place, than that place says.
std::optional<Diagnosis> WrongModuleAttribute(const Evidence& evidence);
// D: its values lie on a coarser grid than the reference's.
std::optional<Diagnosis> LostPrecision(const ValueView& view);
// D: a linear module rounds its operands to few bits, other than the reference.
std::optional<Diagnosis> RoundedOperands(const ValueView& view);
// L: the loss, or the gradient it sends into the model, is scaled by a constant
// for each micro-batch.
std::optional<Diagnosis> LossNormalisation(const ValueView& view);
// S, H, G, K, D: another step than that of the settings explains what is there
// after a step that is wrong.
std::optional<Diagnosis> WrongStep(const Evidence& evidence);
// I: a replay of the candidate is not what it was.
std::optional<Diagnosis> NotRepeatable(const Evidence& evidence);
// G: the gradient norm is not the norm of the gradients.
std::optional<Diagnosis> WrongGradNorm(const Evidence& evidence);
// Z: other inputs or other initial weights.
std::optional<Diagnosis> OtherInputs(const Evidence& evidence);
// Z: modules or parameters that one side lacks.
std::optional<Diagnosis> OtherStructure(const Evidence& evidence);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_RULES_RULES_H_
