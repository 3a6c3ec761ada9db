// What the legs of the run as it was say of one tensor together.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_JUDGE_END_TO_END_H_
#define TTRACE_SRC_JUDGE_END_TO_END_H_

#include <vector>

#include "src/experiment/leg_plan.h"
#include "src/judge/judgement.h"
#include "src/judge/reason.h"
#include "src/judge/routing_ties.h"
#include "src/measure/facts.h"

namespace ttrace {

// Points into the legs that it was made of.
struct EndToEnd {
  // Why the comparison is not whole; none: it is.
  Reason gap;
  const LegJudgement* first = nullptr;  // that was judged; null: none was
  const LegJudgement* overflow = nullptr;
  const LegJudgement* uncertain = nullptr;
  bool equal = true;       // bit for bit, in each of them
  bool nonfinite = false;  // values that the reference does not have so
  // A leg is out of bounds after tokens that were routed otherwise by a tie. It
  // decides nothing.
  bool routed_upstream = false;
  int deciding_leg = -1;
  double headroom = 0;  // infinite of values that are not finite

  bool out() const { return headroom > 1; }
};

// Which elements a comparison that is not whole lacks.
Reason MissingElements(const TensorComparison& compared);

// `legs`: judged, of the usable ones of `facts` and in their order.
EndToEnd SeeEndToEnd(const TensorFacts& facts,
                     const std::vector<LegJudgement>& legs,
                     const std::vector<LegPlan>& plans,
                     const RoutingTies& ties);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_END_TO_END_H_
