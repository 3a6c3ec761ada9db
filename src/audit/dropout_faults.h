// Dropout masks that are not what they must be: equal where ranks hold copies
// of one value and where a forward is repeated, different everywhere else.
//
// Two independent masks of n values, each dropped with probability p, are equal
// with probability (p^2 + (1-p)^2)^n. Masks are judged where that is at most
// 2^-64, which is also the chance that two different masks have one digest: of
// a million masks, with 5e11 pairs, two are equal by chance in 1 of 10^7 runs.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_AUDIT_DROPOUT_FAULTS_H_
#define TTRACE_SRC_AUDIT_DROPOUT_FAULTS_H_

#include <optional>
#include <string>
#include <vector>

#include "src/audit/dropout_masks.h"
#include "src/experiment/iteration_range.h"
#include "src/localize/culprit.h"
#include "ttrace/mesh.h"

namespace ttrace {

struct DropoutFaults {
  std::vector<Culprit> culprits;  // class U, earliest first
  std::vector<std::string> notes;
};

// Where each rank of a run is in its mesh, by rank.
struct RanksInMesh {
  DeviceMesh mesh;
  std::vector<Coordinate> coordinates;
};
RanksInMesh RanksOf(const Trace& trace);

// `spoilt`: something else is wrong with the run's forward. Copies may then
// differ through that, and look like other data: masks that are equal over
// ranks of one micro-batch prove nothing.
DropoutFaults FindDropoutFaults(
    const DropoutFacts& run, const RanksInMesh& ranks, bool spoilt,
    const std::optional<IterationRange>& iterations = std::nullopt);

// Calls of dropout that both runs made, in one place, with another probability:
// class H. A call that one run alone made is no fault: the other may drop
// within a kernel, or not at all because its user switched dropout off to
// compare.
DropoutFaults CompareProbabilities(
    const DropoutFacts& reference, const DropoutFacts& candidate,
    const std::optional<IterationRange>& iterations = std::nullopt);

// Why two runs cannot be compared because of dropout, and what to do; empty if
// they can.
std::string DropoutPreventsComparison(const DropoutFacts& reference,
                                      const DropoutFacts& candidate);

// That capture switched dropout off; empty if it did not.
std::string DropoutIsOff(const DropoutFacts& run);

}  // namespace ttrace

#endif  // TTRACE_SRC_AUDIT_DROPOUT_FAULTS_H_
