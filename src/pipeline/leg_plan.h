// Which legs of the two sides are compared with which, and what judges them.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_PIPELINE_LEG_PLAN_H_
#define TTRACE_SRC_PIPELINE_LEG_PLAN_H_

#include <string>
#include <vector>

#include "src/pipeline/side.h"

namespace ttrace {

struct LegPlan {
  std::string name;  // "real" or "fp32", as reported
  std::string reference_leg;
  std::string candidate_leg;
  std::vector<std::string> noise_legs;  // of the reference
  std::string fp32_leg;                 // of the reference; empty: none
  double unit_roundoff = 0;
};

struct LegPlans {
  std::vector<LegPlan> plans;
  std::vector<std::string> notes;  // what cannot be compared, and why
};

// An fp32 run is its own fp32 leg: a bf16 candidate's fp32 leg is compared with
// an fp32 reference's real leg. Runs that compute in different precisions have
// no common real leg.
LegPlans PlanLegs(const Side& reference, const Side& candidate);

}  // namespace ttrace

#endif  // TTRACE_SRC_PIPELINE_LEG_PLAN_H_
