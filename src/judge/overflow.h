// Gradients beyond what fp16 holds under a loss scale, in a step that the
// optimizer found them in and did not make.
//
// Which of them overflow depends on how a sum was divided: a run that takes
// more samples at once rounds their sum to fp16, where another one adds it up
// in fp32. So such elements tell nothing of a fault, and the loss scale itself
// sees to it that nothing is made of them.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_JUDGE_OVERFLOW_H_
#define TTRACE_SRC_JUDGE_OVERFLOW_H_

#include <set>
#include <vector>

#include "src/experiment/side.h"
#include "src/measure/facts.h"
#include "src/measure/packed_facts.h"

namespace ttrace {

class Overflows {
 public:
  // `tensors`: of the candidate. Without a reference, any gradient of a step
  // that was not made which is not finite counts.
  Overflows(const Side* reference, const Side& candidate,
            const PackedFacts& tensors);

  // Of a gradient in low precision: whether elements that are finite in one
  // run alone may be of this kind.
  bool Reach(const TensorId& id) const;
  // Whether the step of this iteration may have been left out by the candidate
  // alone because of them.
  bool LeaveOutStep(int iteration) const;

 private:
  std::set<int> iterations_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_OVERFLOW_H_
