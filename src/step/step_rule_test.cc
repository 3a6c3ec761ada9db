#include "src/step/step_rule.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttrace::step_rule_test {
namespace {

StepRuleReading Read(const std::string& kind, const std::string& values,
                     int rank = 0) {
  const std::string json = R"({"iteration": 3, "kind": ")" + kind +
                           R"(", "values": )" + values +
                           R"(, "parameters": ["w"]})";
  const Hyperparameters read =
      ReadHyperparameters(std::vector<Note>{{0, "optimizer_group", json}});
  EXPECT_EQ(read.malformed, 0);
  return ReadStepRule(read.steps.at({3, "w"}), rank);
}

TEST(ReadStepRule, Adam) {
  const auto read = Read(
      "Adam",
      R"({"lr": 0.1, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.01,
          "decoupled_weight_decay": true, "amsgrad": true, "maximize": true,
          "bias_correction": 0, "clip_grad": 1.5, "centered": false,
          "clip_grad_norm_type": 2.0, "fused": true})");
  ASSERT_TRUE(read.rule) << read.gap.name;
  EXPECT_EQ(read.rule->algorithm, StepAlgorithm::kAdam);
  EXPECT_EQ(read.rule->lr, 0.1);
  EXPECT_EQ(read.rule->beta1, 0.9);
  EXPECT_EQ(read.rule->beta2, 0.99);
  EXPECT_EQ(read.rule->eps, 1e-8);
  EXPECT_EQ(read.rule->weight_decay, 0.01);
  EXPECT_TRUE(read.rule->decoupled);
  EXPECT_TRUE(read.rule->amsgrad);
  EXPECT_TRUE(read.rule->maximize);
  EXPECT_FALSE(read.rule->bias_correction);
  EXPECT_EQ(read.rule->clip_norm, 1.5);
  EXPECT_FALSE(read.rule->clip_value);
}

TEST(ReadStepRule, Sgd) {
  const auto read =
      Read("SGD", R"({"lr": 0.1, "momentum": 0.9, "dampening": 0.5,
                      "nesterov": true, "weight_decay": 0.2,
                      "clip_grad": null, "clip_grad_value": 2})");
  ASSERT_TRUE(read.rule) << read.gap.name;
  EXPECT_EQ(read.rule->algorithm, StepAlgorithm::kSgd);
  EXPECT_EQ(read.rule->momentum, 0.9);
  EXPECT_EQ(read.rule->dampening, 0.5);
  EXPECT_EQ(read.rule->weight_decay, 0.2);
  EXPECT_TRUE(read.rule->nesterov);
  EXPECT_FALSE(read.rule->clip_norm);
  EXPECT_EQ(read.rule->clip_value, 2);
}

StepGap GapOf(const std::string& kind, const std::string& values) {
  const auto read = Read(kind, values);
  EXPECT_FALSE(read.rule);
  return read.gap;
}

TEST(ReadStepRule, SaysWhatIsNotKnown) {
  using Kind = StepGap::Kind;
  EXPECT_EQ(GapOf("Lion", R"({"lr": 1})"), (StepGap{Kind::kAlgorithm, "Lion"}));
  const auto gap = [](const std::string& more) {
    return GapOf("Adam",
                 R"({"lr": 1, "betas": [0.9, 0.9], "eps": 0)" + more + "}");
  };
  const auto named = [](const std::string& name) {
    return StepGap{Kind::kHyperparameter, name};
  };
  EXPECT_EQ(gap(R"(, "trust_ratio": 3)"), named("trust_ratio"));
  EXPECT_EQ(gap(R"(, "weight_decay": 0.1)"), named("decoupled_weight_decay"));
  EXPECT_EQ(gap(R"(, "clip_grad": 1, "clip_grad_value": 1)"),
            named("clip_grad_value"));
  EXPECT_EQ(gap(R"(, "amsgrad": "sometimes")"), named("amsgrad"));
  EXPECT_EQ(GapOf("Adam", R"({"lr": 1, "eps": 0})"), named("betas"));
  EXPECT_EQ(GapOf("SGD", R"({"momentum": 0})"), named("lr"));
  EXPECT_EQ(GapOf("SGD", R"({"lr": "Infinity"})"), named("lr"));
}

TEST(ReadStepRule, OfARankThatNotedNothing) {
  const auto read = Read("SGD", R"({"lr": 1})", 1);
  EXPECT_FALSE(read.rule);
  EXPECT_EQ(read.gap.kind, StepGap::Kind::kNothingNoted);
}

TEST(ReadStepRule, TwoValuesOfOneRankAreNone) {
  std::vector<Note> notes;
  for (const char* lr : {"1", "2"}) {
    notes.push_back(
        {0, "optimizer_group",
         std::string(R"({"iteration": 0, "kind": "SGD", "values":)") +
             R"({"lr": )" + lr + R"(}, "parameters": ["w"]})"});
  }
  const Hyperparameters both = ReadHyperparameters(notes);
  const auto read = ReadStepRule(both.steps.at({0, "w"}), 0);
  EXPECT_FALSE(read.rule);
  EXPECT_EQ(read.gap.name, "lr");
}

}  // namespace
}  // namespace ttrace::step_rule_test
