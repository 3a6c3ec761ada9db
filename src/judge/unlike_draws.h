// Random numbers that a forward draws by itself (noise, stochastic depth,
// dropout that is no function of torch's) and that are others in the two runs:
// what was computed with them is another computation.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_JUDGE_UNLIKE_DRAWS_H_
#define TTRACE_SRC_JUDGE_UNLIKE_DRAWS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/experiment/side.h"
#include "src/measure/facts.h"
#include "src/measure/packed_facts.h"

namespace ttrace {

class UnlikeDraws {
 public:
  // `tensors`: of the candidate, in the order of execution. Without a reference
  // nothing is unlike.
  UnlikeDraws(const Side* reference, const Side& candidate,
              const PackedFacts& tensors);

  std::set<std::string> modules() const;

  // Whether the value was computed after the first of them, in a run whose
  // values are its own.
  bool Affects(const TensorFacts& tensor) const;
  // Whether it was computed with them even where every module works on the
  // reference's values: by a module that draws, or that was left values made
  // from what was drawn (integers, and others that could not be replaced), or
  // has one inside that does.
  bool AffectsIsolated(const TensorId& id) const;

 private:
  // The nearest module around it that was called; lists are not.
  std::string CallerOf(const std::string& module) const;

  using Place = std::pair<int, std::string>;  // iteration, module
  std::set<Place> places_;
  // Modules with an input, or with an arriving gradient, that was made from
  // them and not replaced.
  std::set<Place> inputs_left_;
  std::set<Place> gradients_left_;
  std::set<std::string> called_;
  std::map<int, int64_t> first_;  // iteration -> order of the first value
};

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_UNLIKE_DRAWS_H_
