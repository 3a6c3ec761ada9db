// Buffers that forwards change: running means and variances, centres, scales.
//
// What such a buffer is when a later iteration begins, forwards of that run
// have made. A rank may make it of its own rows, honestly, where it is kept for
// evaluation: then it is out of bounds and nothing else is. Where a forward
// computes with it, what it computes is out of bounds too, at the module that
// owns the buffer, and the buffer is the cause: it was wrong before.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_LOCALIZE_CARRIED_BUFFERS_H_
#define TTRACE_SRC_LOCALIZE_CARRIED_BUFFERS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/judge/judgement.h"
#include "src/localize/blame.h"

namespace ttrace {

class CarriedBuffers {
 public:
  // Those among `tensors`, which are of one iteration and must outlive this.
  explicit CarriedBuffers(const std::vector<const TensorJudgement*>& tensors);

  // The buffer out of bounds of the module whose forward is blamed, or null. Of
  // several the one that is furthest out.
  const TensorJudgement* OwnedBy(const Blame& blame) const;

 private:
  std::map<std::string, const TensorJudgement*> by_module_;
};

// The blame of `buffer`, for what `blame` found.
Blame OfBuffer(const TensorJudgement& buffer, const Blame& blame);

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_CARRIED_BUFFERS_H_
