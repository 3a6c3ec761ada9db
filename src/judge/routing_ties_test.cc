#include "src/judge/routing_ties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace::routing_ties_test {
namespace {

using testing::ElementsAre;

LegFacts Leg(std::vector<double> margins, size_t plan = 0) {
  LegFacts leg;
  leg.plan = plan;
  leg.usable = true;
  leg.flips = RoutingFlips{100, {}};
  for (const double margin : margins) {
    leg.flips->flipped.push_back(
        {static_cast<int64_t>(leg.flips->flipped.size()), margin});
  }
  ErrorStats& total = leg.candidate.total;
  total.count = 400;
  total.mismatched = static_cast<int64_t>(2 * margins.size());
  leg.candidate.instances = {{{0}, 0, {}, 0}, {{1}, 1, total, 0}};
  return leg;
}

ttrace::Test Element(double bound) {
  ttrace::Test test;
  test.statistic = Statistic::kElement;
  test.bound = bound;
  test.noise = bound / 4;
  test.expected.noise_legs = 3;
  test.expected.origin = Origin::kNoise;
  return test;
}

TEST(JudgeFlips, CountsWhatRoundOffExplains) {
  const LegJudgement tied = JudgeFlips("real", Leg({0.1, 0.2}), Element(0.2));
  EXPECT_EQ(tied.leg, "real");
  ASSERT_TRUE(tied.flips);
  EXPECT_EQ(tied.flips->tokens, 100);
  EXPECT_EQ(tied.flips->flipped, 2);
  EXPECT_EQ(tied.flips->tied, 2);
  EXPECT_EQ(tied.headroom, 1);
  EXPECT_TRUE(tied.ranks.empty());
  const ttrace::Test* test = tied.Find(Statistic::kRouting);
  ASSERT_NE(test, nullptr);
  EXPECT_EQ(test->value, 0.2);
  EXPECT_EQ(test->bound, 0.2);
  EXPECT_EQ(test->expected.noise_legs, 3);

  const LegJudgement wide = JudgeFlips("real", Leg({0.1, 0.4}), Element(0.2));
  EXPECT_EQ(wide.flips->tied, 1);
  EXPECT_FALSE(wide.flips->all_tied());
  EXPECT_DOUBLE_EQ(wide.headroom, 2);
  EXPECT_THAT(wide.ranks, ElementsAre(1));
}

TEST(JudgeFlips, WhatDiffersElsewhereIsNoTie) {
  LegFacts leg = Leg({});
  EXPECT_EQ(JudgeFlips("real", leg, Element(0.2)).headroom, 0);
  leg.candidate.total.mismatched = 1;
  EXPECT_GT(JudgeFlips("real", leg, Element(0.2)).headroom, 1);
}

TensorFacts Of(const std::string& fqn, const std::string& arg, int64_t order,
               Role role = Role::kOutput) {
  TensorFacts facts;
  facts.id.fqn = fqn;
  facts.id.arg = arg;
  facts.id.role = role;
  facts.order = order;
  return facts;
}

// x, scores, probs, map, rows.
std::vector<TensorFacts> Layer(const std::vector<double>& margins) {
  std::vector<TensorFacts> out = {
      Of("router", "x", 0, Role::kInput), Of("router", "scores", 1),
      Of("router", "0", 2), Of("router", "1", 3), Of("expert", "0", 4)};
  LegFacts scores;
  scores.usable = true;
  out[1].legs = {scores};
  out[3].legs = {Leg(margins)};
  return out;
}

RoutingTies Ties(const std::vector<TensorFacts>& tensors,
                 std::optional<ttrace::Test> test = Element(0.2)) {
  return RoutingTies(tensors, [=](const TensorFacts& scores, const LegFacts&) {
    EXPECT_EQ(scores.id.arg, "scores");
    return test;
  });
}

TEST(RoutingTies, ReachWhatIsComputedAfterThem) {
  const std::vector<TensorFacts> layer = Layer({0.1});
  const RoutingTies ties = Ties(layer);
  ASSERT_NE(ties.Find(layer[3].id, 0), nullptr);
  EXPECT_EQ(ties.Find(layer[3].id, 0)->bound, 0.2);
  EXPECT_EQ(ties.Find(layer[3].id, 1), nullptr);
  EXPECT_EQ(ties.Find(layer[4].id, 0), nullptr);
  const auto reached = [&](size_t i) { return ties.Affects(layer[i], 0); };
  EXPECT_FALSE(reached(0));
  EXPECT_FALSE(reached(1));
  EXPECT_TRUE(reached(2));  // made of the choice, recorded before it
  EXPECT_FALSE(reached(3));
  EXPECT_TRUE(reached(4));
  EXPECT_FALSE(ties.Affects(layer[4], 1));
  TensorFacts next = layer[4];
  next.id.iteration = 1;
  EXPECT_FALSE(ties.Affects(next, 0));
}

TEST(RoutingTies, OfAMapWithoutFlipsOrWithAFaultReachNothing) {
  for (const auto& margins : {std::vector<double>(), std::vector{0.1, 0.3}}) {
    const std::vector<TensorFacts> layer = Layer(margins);
    EXPECT_FALSE(Ties(layer).Affects(layer[4], 0));
  }
}

TEST(RoutingTies, NeedScoresWithABound) {
  std::vector<TensorFacts> layer = Layer({0.1});
  EXPECT_EQ(Ties(layer, std::nullopt).Find(layer[3].id, 0), nullptr);
  EXPECT_EQ(Ties(layer, Element(0)).Find(layer[3].id, 0), nullptr);
  const auto found = [&] {
    return Ties(layer).Find(layer[3].id, 0) != nullptr;
  };
  EXPECT_TRUE(found());
  layer[1].legs[0].plan = 1;
  EXPECT_FALSE(found());
  layer[1].legs[0].plan = 0;
  layer[1].legs[0].usable = false;
  EXPECT_FALSE(found());
  layer[1].legs[0].usable = true;
  layer[3].legs[0].usable = false;
  EXPECT_FALSE(found());
  layer[3].legs[0].usable = true;
  layer[1].id.fqn = "other";
  EXPECT_FALSE(found());
}

}  // namespace
}  // namespace ttrace::routing_ties_test
