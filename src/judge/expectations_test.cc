#include "src/judge/expectations.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttrace::expectations_test {
namespace {

// Noise legs that move all of it by `factor`.
TensorFacts Facts(const std::string& fqn, double factor,
                  Role role = Role::kOutput) {
  TensorFacts facts;
  facts.id = {fqn, role, 0, 0, "0", Pass::kForward};
  LegFacts leg;
  leg.usable = true;
  leg.candidate.regions.resize(1);
  leg.candidate.instances.resize(2);
  PairFacts noise;
  noise.total.sum_sq_ref = 1;
  noise.total.sum_err_ref = factor;
  leg.noise = {noise};
  facts.legs = {leg};
  return facts;
}

RepeatFacts Differs() {
  RepeatFacts out;
  out.total.mismatched = 1;
  return out;
}

TEST(Expectations, TheRiskIsDividedOverTheTestsThatAreMade) {
  const auto tests = [](const TensorFacts& facts) {
    const Expectations expectations({facts}, kRunRisk);
    if (expectations.tests() > 0) {
      EXPECT_EQ(expectations.risk(),
                kRunRisk / static_cast<double>(expectations.tests()));
    }
    return expectations.tests();
  };
  TensorFacts facts = Facts("fc", 0);
  EXPECT_EQ(tests(facts), 4);
  facts.legs[0].candidate.regions.resize(2);
  EXPECT_EQ(tests(facts), 6) << "and one for each of two ranks";
  facts.legs[0].noise.clear();
  EXPECT_EQ(tests(facts), 1) << "equality";
  facts.legs[0].usable = false;
  EXPECT_EQ(tests(facts), 0);
  EXPECT_EQ(Expectations({}, kRunRisk).risk(), kRunRisk);
}

TEST(Expectations, LayersShareWhatTheirNoiseLegsShow) {
  const TensorFacts mine = Facts("layers.0.fc", 1e-3);
  const auto pooled = [&](const TensorFacts& other) {
    return Expectations({mine, other}, kRunRisk).PooledProjection(mine.id, 0);
  };
  EXPECT_NEAR(pooled(Facts("layers.1.fc", 3e-3)), 5e-6, 1e-12);
  EXPECT_NEAR(pooled(Facts("layers.1.norm", 3e-3)), 1e-6, 1e-12);
  EXPECT_NEAR(pooled(Facts("layers.1.fc", 3e-3, Role::kInput)), 1e-6, 1e-12);
  // Those that are not comparable, and integers, show nothing.
  TensorFacts silent = Facts("layers.1.fc", 3e-3);
  silent.legs[0].usable = false;
  EXPECT_NEAR(pooled(silent), 1e-6, 1e-12);
  silent = Facts("layers.1.fc", 3e-3);
  silent.exact = true;
  EXPECT_NEAR(pooled(silent), 1e-6, 1e-12);
  silent = Facts("layers.1.fc", 3e-3);
  silent.legs[0].noise.clear();
  EXPECT_NEAR(pooled(silent), 1e-6, 1e-12);
  EXPECT_EQ(Expectations({}, kRunRisk).PooledProjection(mine.id, 0), 0);
}

// Gradients of 12 elements in all that arrive at fc.
TensorFacts Arriving(int call, const std::string& arg = "0") {
  TensorFacts facts = Facts("fc", 0, Role::kGradOutput);
  facts.id.call = call;
  facts.id.arg = arg;
  facts.legs[0].candidate.total.count = 12;
  facts.legs[0].candidate.total.sum_sq_ref = 25;
  return facts;
}

TensorFacts BiasOf(const std::string& module, Role role, int64_t elements) {
  TensorFacts facts = Facts(module + "bias", 0, role);
  facts.id.arg.clear();
  facts.vector = true;
  facts.legs[0].candidate.total.count = elements;
  return facts;
}

TEST(Expectations, ABiasIsTheSumOfWhatArrivesAtItsModule) {
  const TensorFacts bias = BiasOf("fc.", Role::kGradLocal, 4);
  const auto terms = [](const TensorFacts& facts,
                        const std::vector<TensorFacts>& all) {
    return Expectations(all, kRunRisk).TermsOf(facts);
  };
  EXPECT_EQ(terms(bias, {Arriving(0)}), 25);
  EXPECT_EQ(terms(BiasOf("fc.", Role::kGradReduced, 4), {Arriving(0)}), 25);
  EXPECT_EQ(terms(bias, {Arriving(0), Arriving(1)}), 50) << "called twice";
  EXPECT_EQ(terms(bias, {Arriving(0), Arriving(0, "1")}), 0) << "two outputs";
  EXPECT_EQ(terms(bias, {}), 0);
  EXPECT_EQ(terms(BiasOf("gc.", Role::kGradLocal, 4), {Arriving(0)}), 0);
  EXPECT_EQ(terms(BiasOf("fc.", Role::kGradLocal, 5), {Arriving(0)}), 0)
      << "not as many terms of each element";
  EXPECT_EQ(terms(BiasOf("fc.", Role::kParam, 4), {Arriving(0)}), 0);
  EXPECT_EQ(terms(BiasOf("fc.no_", Role::kGradLocal, 4), {Arriving(0)}), 0);
  TensorFacts other_iteration = Arriving(0);
  other_iteration.id.iteration = 1;
  EXPECT_EQ(terms(bias, {other_iteration}), 0);
  TensorFacts matrix = bias;
  matrix.vector = false;
  EXPECT_EQ(terms(matrix, {Arriving(0)}), 0);
}

TEST(Expectations, PartsOfAGradientAreSeenBesideTheLocalOne) {
  TensorFacts local = Facts("fc.weight", 0, Role::kGradLocal);
  local.legs[0].candidate.total.sum_sq_ref = 4;
  local.legs[0].candidate.total.count = 8;
  TensorFacts silent = Facts("head.weight", 0, Role::kGradLocal);
  silent.legs[0].usable = false;
  const Expectations all({local, silent}, kRunRisk);
  Rounding rounding;
  EXPECT_EQ(all.PartsBeside(local.id, rounding).squares, 0);
  rounding.reference_parts = {20, 3};
  EXPECT_EQ(all.PartsBeside(local.id, rounding).squares, 5);
  EXPECT_EQ(all.PartsBeside(local.id, rounding).largest, 6);
  rounding.candidate_parts = {40, 1};  // the larger of the two runs
  EXPECT_EQ(all.PartsBeside(local.id, rounding).squares, 10);
  EXPECT_EQ(all.PartsBeside(local.id, rounding).largest, 6);
  // The same, whatever the loop multiplied the reduced one with.
  const TensorFacts reduced = Facts("fc.weight", 0, Role::kGradReduced);
  EXPECT_EQ(all.PartsBeside(reduced.id, rounding).squares, 10);
  EXPECT_EQ(all.PartsBeside(silent.id, rounding).squares, 0);
  TensorId later = local.id;
  later.iteration = 1;
  EXPECT_EQ(all.PartsBeside(later, rounding).squares, 0);
}

TEST(Expectations, NothingIsExactBehindWhatEitherRunDoesNotRepeat) {
  TensorFacts first = Facts("a", 0);
  TensorFacts second = Facts("b", 0);
  first.order = 3;
  second.order = 5;
  second.reference_repeat = RepeatFacts{};  // bit for bit
  EXPECT_TRUE(Expectations({first, second}, kRunRisk).RepeatsBefore(9));
  second.reference_repeat = Differs();
  const Expectations reference({first, second}, kRunRisk);
  EXPECT_TRUE(reference.RepeatsBefore(4));
  EXPECT_FALSE(reference.RepeatsBefore(5));
  first.candidate_repeat = Differs();
  const Expectations both({first, second}, kRunRisk);
  EXPECT_TRUE(both.RepeatsBefore(2));
  EXPECT_FALSE(both.RepeatsBefore(3));
}

}  // namespace
}  // namespace ttrace::expectations_test
