// CandidateReducer: compares a candidate with the reference where it runs, so
// that only what they differ by is written (ComparedPiece).
//
// The same comparison that a check makes of stored values, and the same
// numbers. Values are written of what no rank can judge alone (terms of sums,
// rows that a router chose), of what is small anyway, of what is not close to
// the reference beyond doubt, so that a diagnosis can look at it, and of
// everything where the reference cannot be read. Of the run as it was a summary
// stands beside the comparison, for a replay that differs and for another
// reference; weights and reduced gradients keep their values. The optimizer's
// steps are made again, and of those that are right its state is only compared.
//
// Source of the rule that is applied on the spot: judge/rule.h, maxima.h.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_IN_PLACE_CANDIDATE_REDUCER_H_
#define TTRACE_SRC_IN_PLACE_CANDIDATE_REDUCER_H_

#include <memory>
#include <string>
#include <vector>

#include "src/in_place/element_scales.h"
#include "src/trace/writer.h"
#include "ttrace/leg.h"

namespace ttrace {

// For a rank of `meta` of a candidate that will run `legs` on the weights and
// the data of the trace in folder `reference`, which is opened when the first
// rerun comes. Reruns that perturb the candidate itself are measured as
// MakeLegReducer does, by `scales`.
std::unique_ptr<Reducer> MakeCandidateReducer(
    const RankMeta& meta, const std::vector<Leg>& legs, std::string reference,
    std::shared_ptr<ElementScales> scales = nullptr);

}  // namespace ttrace

#endif  // TTRACE_SRC_IN_PLACE_CANDIDATE_REDUCER_H_
