// Routing decisions that round-off turns.
//
// A router's choice hangs on a difference of two scores. Each side's scores are
// off by what the test of the scores allows, so that choices between scores
// that are closer than twice that fall either way: a tie. What is computed
// after a tie that fell otherwise is computed of other tokens. Bounds that know
// nothing of that say nothing there, if they are exceeded; isolated legs, in
// which the reference's routing is used, do.
//
// Thread safety: const after construction; pure functions.

#ifndef TTRACE_SRC_JUDGE_ROUTING_TIES_H_
#define TTRACE_SRC_JUDGE_ROUTING_TIES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/judge/judgement.h"
#include "src/measure/facts.h"
#include "src/measure/packed_facts.h"
#include "ttrace/leg.h"

namespace ttrace {

// The judgement of a routing map by what the test of an element of its scores
// allows. REQUIRES: facts.flips
LegJudgement JudgeFlips(const Leg& name, const LegFacts& facts,
                        const Test& element);

class RoutingTies {
 public:
  // The test of an element of scores in a leg; nothing: they have no bound.
  using ElementTest =
      std::function<std::optional<Test>(const TensorFacts&, const LegFacts&)>;

  RoutingTies() = default;
  // `tensors`: of the candidate, in the order of execution.
  RoutingTies(const PackedFacts& tensors, const ElementTest& element_test);

  // What the map's choices are judged by in the leg of `plan`; null: no scores
  // say it.
  const Test* Find(const TensorId& map, size_t plan) const;

  // Whether it was computed after ties of its iteration that fell otherwise in
  // the leg of `plan`, and nothing else wrong with that map.
  bool Affects(const TensorFacts& tensor, size_t plan) const;

 private:
  struct Place {
    int64_t order = 0;
    std::string router;
  };
  std::map<std::pair<TensorId, size_t>, Test> tests_;
  std::map<std::pair<int, size_t>, Place> first_;  // (iteration, plan)
};

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_ROUTING_TIES_H_
