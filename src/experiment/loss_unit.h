// In what unit the candidate's loss is, beside the reference's.
//
// A loop divides by its ranks, its rows or its tokens where it likes: in the
// loss, in the reduction, or in the gradients after it. Capture of such a loop
// cannot see which (note "loss_unit"). What counts is what the optimizer steps
// with: the logical loss is the one whose gradient that is. So where all
// parameters have one factor between their gradient as backward leaves it and
// as it is stepped, in one run and not in the other, and what is stepped is the
// same, the factor is the unit of the loss and of every gradient before the
// reduction. It is taken out of these, and each is judged as ever. Derivation:
// docs/tolerance.md.
//
// Thread safety: pure but for the side that is changed, which must not be in
// use elsewhere.

#ifndef TTRACE_SRC_EXPERIMENT_LOSS_UNIT_H_
#define TTRACE_SRC_EXPERIMENT_LOSS_UNIT_H_

#include <optional>
#include <vector>

#include "src/experiment/gradient_factors.h"
#include "src/experiment/run_note.h"
#include "src/experiment/side.h"
#include "src/trace/record_fields.h"

namespace ttrace {

// What the candidate's losses, and its gradients before the reduction, have to
// be multiplied by to be in the reference's unit. Nothing: they are in it, as
// far as can be told, or what is stepped differs more than they do, which is a
// fault.
std::optional<Scale> UnitOfLoss(const GradientFactors& factors);

// Declares the units that `factors` show, in all legs of the candidate, if
// either run does not know its own. Returns what a reader should know of it.
std::vector<RunNote> SettleLossUnits(
    const Side& reference, const std::vector<GradientFactors>& factors,
    Side* candidate);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_LOSS_UNIT_H_
