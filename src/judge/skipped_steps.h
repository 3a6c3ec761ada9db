// Iterations that ended without a step of the optimizer, and what of their
// gradients is then no evidence.
//
// Overflow: gradients beyond what fp16 holds under a loss scale, in a step that
// the optimizer found them in and did not make. Which of them overflow depends
// on how a sum was divided: a run that takes more samples at once rounds their
// sum to fp16, where another one adds it up in fp32. So such elements tell
// nothing of a fault, and the loss scale itself sees to it that nothing is made
// of them.
//
// Cleared: gradients that a loop throws away, as those of a discriminator in
// the pass that trains the generator. They may be unreduced, and differ between
// copies: no weight ever sees them.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_JUDGE_SKIPPED_STEPS_H_
#define TTRACE_SRC_JUDGE_SKIPPED_STEPS_H_

#include <set>
#include <vector>

#include "src/experiment/side.h"
#include "src/measure/facts.h"
#include "src/measure/packed_facts.h"

namespace ttrace {

class SkippedSteps {
 public:
  // `tensors`: of the candidate. Without a reference, any gradient of a step
  // that was not made which is not finite counts as overflow.
  SkippedSteps(const Side* reference, const Side& candidate,
               const PackedFacts& tensors);

  // Of a gradient in low precision: whether elements that are finite in one
  // run alone may be overflows.
  bool MayOverflow(const TensorId& id) const;
  // Whether the step of this iteration may have been left out by the candidate
  // alone because of overflow.
  bool LeaveOutStep(int iteration) const;
  // Whether this is a reduced gradient that every rank, of both runs, cleared
  // without a step.
  bool Clear(const TensorId& id) const;
  // Whether this is a loss, or made by a backward, of an iteration in which
  // both runs cleared gradients before its step or in the place of one: the
  // scale of those no step shows. What a step is made with, reduced gradients
  // show.
  bool OfClearedPass(const TensorId& id) const;

 private:
  std::set<int> overflowed_;
  std::set<int> with_cleared_pass_;
  std::set<int> cleared_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_SKIPPED_STEPS_H_
