// From what is known of one tensor to its verdict: an ordered table of rules.
//
// Each rule is a function that says an outcome or nothing, and the first that
// says one decides. So the order of a table is the order of strength of what
// the rules speak of, and what excuses a tensor stands in front of what would
// convict it. A new exemption is a function and a line in a table.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_JUDGE_VERDICT_RULES_H_
#define TTRACE_SRC_JUDGE_VERDICT_RULES_H_

#include <optional>
#include <vector>

#include "src/judge/end_to_end.h"
#include "src/judge/judgement.h"
#include "src/judge/outcome.h"
#include "src/measure/facts.h"

namespace ttrace {

// One tensor, and what the run around it makes of it.
struct Case {
  const TensorFacts& facts;
  const std::vector<LegJudgement>& legs;
  EndToEnd seen;
  // Both runs threw it away.
  bool cleared = false;
  // Gradients that it is made of, or makes, may be such: of a pass that both
  // runs threw away within the iteration, at a scale that no step shows.
  bool of_cleared_pass = false;
  // Its parts were presumed to be copies of one tensor.
  bool presumed_alike = false;
  // Not what was computed with.
  bool replaced_by_graft = false;
  // Computed after random numbers that the other run drew otherwise.
  bool after_draws = false;
  bool unequal_start = false;
  bool may_overflow = false;
  // Its iteration may have left out its step as it should (skipped_steps.h).
  bool step_skipped = false;
  bool copies_differ = false;
  // A buffer that forwards of earlier iterations made what it is.
  bool carried = false;
};

// What is said without any leg: then there is nothing to judge.
std::optional<Outcome> WhyNotJudged(const Case& of);

// Held against a reference.
Outcome ConcludeAgainst(const Case& of);

// By itself: copies, and values that must be finite. What is not finite is said
// to be in leg 0.
Outcome ConcludeWithoutReference(const Case& of);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_VERDICT_RULES_H_
