// Which legs of the two sides are compared with which, and what judges them.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_EXPERIMENT_LEG_PLAN_H_
#define TTRACE_SRC_EXPERIMENT_LEG_PLAN_H_

#include <optional>
#include <string>
#include <vector>

#include "src/experiment/run_note.h"
#include "src/experiment/side.h"
#include "ttrace/leg.h"

namespace ttrace {

struct LegPlan {
  // "real", "fp32", "isolated" or "fp32.isolated", as reported.
  Leg name;
  Leg reference_leg;
  Leg candidate_leg;
  std::vector<Leg> noise_legs;  // of the reference
  Leg fp32_leg;                 // of the reference; empty: none
  // Of the reference, where only its own distance from the truth is known: an
  // isolated leg in low precision. Empty: none.
  Leg reference_fp32_leg;
  double unit_roundoff = 0;
  // Judges what each module adds, not the run: TensorJudgement::isolated.
  bool isolated = false;
  // Isolated, but judged by noise of whole runs, for want of noise one module
  // deep.
  bool borrowed_noise = false;
};

struct LegPlans {
  std::vector<LegPlan> plans;
  std::vector<RunNote> notes;  // what cannot be compared, and why
};

// An fp32 run is its own fp32 leg: a bf16 candidate's fp32 leg is compared with
// an fp32 reference's real leg. Runs that compute in different precisions have
// no common real leg.
//
// A module that is given the reference's values computes what the reference
// computed, so a candidate's isolated leg is compared with the reference's
// plain one. Its noise is one module deep; without noise legs of that kind the
// end-to-end ones serve, which are wider.
LegPlans PlanLegs(const Side& reference, const Side& candidate);

// The plan of a leg of any candidate that is given the reference's weights and
// data, and computes in the precision that the reference computes in. A replay
// has that of the leg it repeats. Nothing if it has none: a leg of another
// name, or of which the reference has nothing.
std::optional<LegPlan> PlanOfLeg(const Side& reference,
                                 const Leg& candidate_leg);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_LEG_PLAN_H_
