#include "src/judge/routing_ties.h"

#include <algorithm>
#include <limits>

namespace ttrace {

LegJudgement JudgeFlips(const Leg& name, const LegFacts& facts,
                        const Test& element) {
  LegJudgement out;
  out.leg = name;
  out.stats = facts.candidate.total;
  out.err = out.stats.rel_err();
  LegJudgement::Flips flips;
  flips.tokens = facts.flips->tokens;
  flips.flipped = static_cast<int64_t>(facts.flips->flipped.size());
  Test test;
  test.statistic = Statistic::kRouting;
  test.bound = element.bound;
  test.expected = element.expected;
  test.noise = element.noise;
  for (const FlippedToken& token : facts.flips->flipped) {
    test.value = std::max(test.value, token.margin);
    flips.tied += token.margin <= test.bound ? 1 : 0;
  }
  test.headroom = flips.all_tied() ? std::min(1.0, test.value / test.bound)
                                   : test.value / test.bound;
  // Elements that differ in tokens that were not looked at.
  if (flips.flipped == 0 && !out.stats.bitwise_equal()) {
    test.headroom = std::numeric_limits<double>::infinity();
  }
  out.flips = flips;
  out.Add(std::move(test));
  if (out.headroom > 1) out.ranks = DifferingRanks(facts.candidate);
  return out;
}

RoutingTies::RoutingTies(const PackedFacts& tensors,
                         const ElementTest& element_test) {
  std::map<TensorId, size_t> by_id;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorFacts tensor = tensors[i];
    if (tensor.id.arg == kScoresArg) by_id.emplace(tensor.id, i);
  }
  if (by_id.empty()) return;
  for (const TensorFacts& tensor : tensors) {
    TensorId id = tensor.id;
    id.arg = kScoresArg;
    const auto found = by_id.find(id);
    if (found == by_id.end()) continue;
    const TensorFacts scores = tensors[found->second];
    for (const LegFacts& leg : tensor.legs) {
      if (!leg.usable || !leg.flips) continue;
      for (const LegFacts& other : scores.legs) {
        if (!other.usable || other.plan != leg.plan) continue;
        std::optional<Test> test = element_test(scores, other);
        if (!test || !(test->bound > 0)) continue;
        const LegJudgement judged = JudgeFlips("", leg, *test);
        if (judged.flips->flipped > 0 && !(judged.headroom > 1)) {
          first_.try_emplace({tensor.id.iteration, leg.plan},
                             Place{tensor.order, tensor.id.fqn});
        }
        tests_.emplace(std::pair(tensor.id, leg.plan), *std::move(test));
      }
    }
  }
}

const Test* RoutingTies::Find(const TensorId& map, size_t plan) const {
  const auto found = tests_.find({map, plan});
  return found == tests_.end() ? nullptr : &found->second;
}

bool RoutingTies::Affects(const TensorFacts& tensor, size_t plan) const {
  const auto found = first_.find({tensor.id.iteration, plan});
  if (found == first_.end()) return false;
  const Place& first = found->second;
  if (tensor.order > first.order) return true;
  // What else the router makes of its choice may be recorded before it.
  return tensor.order < first.order && tensor.id.fqn == first.router &&
         tensor.id.role == Role::kOutput && tensor.id.arg != kScoresArg;
}

}  // namespace ttrace
