// Values that no rounding bounds: integers and booleans that a run computes.
//
// Data must be equal. But a router's choice flips where two scores are nearly
// equal, and then noise legs flip some, too. With f flips in s legs, those of
// one more clean run follow a negative binomial law of r = f + 1/2 and success
// probability s / (s + 1) (a Poisson rate with Jeffreys' prior). If no leg
// flips any, none is allowed.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_JUDGE_MISMATCHES_H_
#define TTRACE_SRC_JUDGE_MISMATCHES_H_

#include <cstdint>
#include <vector>

#include "src/judge/judgement.h"
#include "src/measure/facts.h"
#include "ttrace/leg.h"

namespace ttrace {

// The number of flips that one more clean run exceeds with probability `risk`
// at most, if `legs` noise legs flipped `flips` in all; 0 for no flips.
// REQUIRES: legs >= 1, 0 < risk < 1.
int64_t AllowedFlips(int64_t flips, int legs, double risk);

// The judgement of a leg by equality. `computed`: not what the run was fed, so
// that flips in the noise legs count.
LegJudgement JudgeEquality(const Leg& name, const LegFacts& facts,
                           bool computed, double risk);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_MISMATCHES_H_
