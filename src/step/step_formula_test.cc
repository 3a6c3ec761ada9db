#include "src/step/step_formula.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/numeric/instruction_set.h"
#include "src/numeric/round_to.h"
#include "src/step/testing/float_step.h"

namespace ttrace::step_formula_test {
namespace {

constexpr size_t At(StepField field) { return static_cast<size_t>(field); }

StepRule Sgd() {
  StepRule rule;
  rule.algorithm = StepAlgorithm::kSgd;
  rule.lr = 0.1;
  rule.momentum = 0.9;
  rule.dampening = 0.25;
  rule.weight_decay = 0.01;
  return rule;
}

StepSetting SettingOf(DType dtype, int count) {
  StepSetting out;
  out.count = count;
  out.parameter = out.gradient = out.first = out.second = out.largest = dtype;
  out.copy = dtype;
  return out;
}

template <typename Real>
Real Stored(Real x, DType dtype) {
  return static_cast<Real>(RoundTo(static_cast<double>(x), dtype));
}

template <typename Real>
StepElement ElementOf(const StateIn<Real>& before, Real gradient,
                      const StateIn<Real>& after) {
  StepElement out = {};
  const auto put = [&](StepField field, Real value) {
    out[At(field)] = static_cast<double>(value);
  };
  put(StepField::kParameter, before.parameter);
  put(StepField::kGradient, gradient);
  put(StepField::kFirst, before.first);
  put(StepField::kSecond, before.second);
  put(StepField::kLargest, before.largest);
  put(StepField::kMomentum, before.first);
  put(StepField::kParameterAfter, after.parameter);
  put(StepField::kFirstAfter, after.first);
  put(StepField::kSecondAfter, after.second);
  put(StepField::kLargestAfter, after.largest);
  put(StepField::kMomentumAfter, after.first);
  put(StepField::kCopyAfter, after.parameter);
  return out;
}

// The largest headroom of all quantities.
double Headroom(const StepFormula& formula, const StepElement& element) {
  double out = 0;
  for (const StepQuantity quantity : formula.quantities()) {
    out = std::fmax(out, StepHeadroom(element[At(ResultOf(quantity))],
                                      formula.Expect(quantity, element)));
  }
  return out;
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  bool Chance(double p) { return Between(0, 1) < p; }
  double Power(double low, double high) {
    return std::pow(10, Between(low, high));
  }
  template <typename Real = float>
  Real Signed(double low, double high) {
    return static_cast<Real>((Chance(0.5) ? 1 : -1) * Power(low, high));
  }
  // Zeros, denormals, tiny and huge numbers.
  template <typename Real = float>
  Real Extreme() {
    constexpr double kNormal = std::numeric_limits<Real>::min_exponent10;
    if (Chance(0.1)) return Chance(0.5) ? Real{0} : -Real{0};
    if (Chance(0.1)) {
      return Signed<Real>(kNormal - std::numeric_limits<Real>::digits10 - 1,
                          kNormal - 1);
    }
    return Chance(0.5) ? Signed<Real>(-25, 15) : Signed<Real>(-6, 1);
  }

  // One of some values.
  template <typename Real>
  Real Of(const std::vector<Real>& values) {
    return values[random_() % values.size()];
  }

  StepRule Rule() {
    StepRule rule;
    rule.lr = Chance(0.1) ? 0 : Power(-9, Chance(0.1) ? 8 : 1);
    rule.weight_decay = Chance(0.4) ? 0 : Power(-6, 0.5);
    rule.decoupled = Chance(0.5);
    rule.maximize = Chance(0.2);
    if (Chance(0.3)) {
      rule.algorithm = StepAlgorithm::kSgd;
      rule.decoupled = false;
      rule.momentum = Chance(0.3) ? 0 : Between(0, 1);
      rule.dampening = Chance(0.5) ? 0 : Between(0, 1);
      rule.nesterov = rule.momentum != 0 && Chance(0.5);
      return rule;
    }
    rule.beta1 = Chance(0.1) ? 0 : 1 - Power(-4, -0.01);
    rule.beta2 = Chance(0.1) ? 0 : 1 - Power(-6, -0.01);
    rule.eps = Chance(0.1) ? 0 : Power(-16, -2);
    rule.amsgrad = Chance(0.3);
    rule.bias_correction = Chance(0.8);
    return rule;
  }

 private:
  std::mt19937_64 random_;
};

class HonestSteps : public testing::TestWithParam<DType> {};

// One rule and many elements, then another rule: more than 10^6 elements of
// each dtype, every order of arithmetic.
template <typename Real>
void ExpectHonestStepsWithin(DType dtype) {
  Draw draw(7);
  // Drawn once: to draw takes longer than all else here.
  std::vector<Real> values(100'000);
  for (Real& value : values) value = Stored(draw.Extreme<Real>(), dtype);
  for (int round = 0; round < 1500; ++round) {
    const StepRule rule = draw.Rule();
    const int count = static_cast<int>(draw.Power(0, draw.Chance(0.5) ? 1 : 6));
    StepSetting setting = SettingOf(dtype, count);
    setting.first_step = count == 1;
    const StepFormula formula(rule, setting);
    for (const StepOrder order : kStepOrders) {
      // Divides by the learning rate: torch itself gives NaN for 0.
      if (order == StepOrder::kCapturable && rule.lr == 0) continue;
      const StepIn<Real> step(order, rule, count, dtype);
      constexpr size_t kCount = 152;
      std::array<std::array<double, kCount>, kStepFields> fields;
      StepColumns columns;
      for (size_t f = 0; f < kStepFields; ++f) columns[f] = fields[f].data();
      for (size_t i = 0; i < kCount; ++i) {
        StateIn<Real> before;
        before.parameter = draw.Of(values);
        before.first = draw.Of(values);
        before.second = std::fabs(draw.Of(values));
        before.largest = std::fabs(draw.Of(values));
        if (count == 1) before.first = before.second = before.largest = 0;
        const Real gradient = draw.Of(values);
        const StepElement element = ElementOf(
            before, gradient, step.After(before, gradient, count == 1));
        for (size_t f = 0; f < kStepFields; ++f) fields[f][i] = element[f];
      }
      for (const StepQuantity quantity : formula.quantities()) {
        std::array<double, kCount> value;
        std::array<double, kCount> bound;
        std::array<double, kCount> headroom;
        const auto& recorded = fields[At(ResultOf(quantity))];
        ExpectAfterStep(formula.constants(), quantity, columns, kCount,
                        value.data(), bound.data());
        HeadroomsOfStep(recorded.data(), value.data(), bound.data(), kCount,
                        headroom.data());
        for (size_t i = 0; i < kCount; ++i) {
          const auto of = [&](StepField field) { return fields[At(field)][i]; };
          ASSERT_LE(headroom[i], 1)
              << "round " << round << ", order " << static_cast<int>(order)
              << ", quantity " << static_cast<int>(quantity) << ": "
              << recorded[i] << " for " << value[i] << " +- " << bound[i]
              << " (p " << of(StepField::kParameter) << ", m "
              << of(StepField::kFirst) << ", v " << of(StepField::kSecond)
              << ", g " << of(StepField::kGradient) << ", lr " << rule.lr
              << ", betas " << rule.beta1 << " " << rule.beta2 << ", eps "
              << rule.eps << ", wd " << rule.weight_decay << ", count " << count
              << ")";
        }
      }
    }
  }
}

TEST_P(HonestSteps, AreWithinTheBound) {
  if (GetParam() == DType::kF64) {
    ExpectHonestStepsWithin<double>(GetParam());
  } else {
    ExpectHonestStepsWithin<float>(GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, HonestSteps,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16,
                                         DType::kF64));

// A bound that admits everything would pass the test above. Of ordinary values
// it is a few units in the last place of what is added up.
TEST(StepFormula, BoundsAreTight) {
  Draw draw(3);
  for (const bool adam : {true, false}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const StepRule rule = adam ? AdamW() : Sgd();
      const StepFormula formula(rule, SettingOf(dtype, 100));
      const FloatStep step(StepOrder::kTensors, rule, 100, dtype);
      const double unit = UnitRoundoff(dtype);
      for (int i = 0; i < 1000; ++i) {
        StepState before;
        before.parameter = Stored(draw.Signed(-2, 0), dtype);
        before.first = Stored(draw.Signed(-4, -3), dtype);
        before.second = Stored(static_cast<float>(draw.Power(-7, -6)), dtype);
        const float gradient = Stored(draw.Signed(-4, -3), dtype);
        const StepElement element =
            ElementOf(before, gradient, step.After(before, gradient));
        const auto bound = [&](StepQuantity quantity) {
          return formula.Expect(quantity, element).bound;
        };
        const double p = std::fabs(static_cast<double>(before.parameter));
        // A rounded beta is seen in the corrections of bias.
        const double moved = std::fabs(static_cast<double>(
            step.After(before, gradient).parameter - before.parameter));
        EXPECT_LE(bound(StepQuantity::kParameter),
                  (4 * p + 600 * (moved + 4 * unit * p)) * unit * 1.2);
        if (!adam) continue;
        EXPECT_LE(bound(StepQuantity::kFirst), 4e-3 * unit * 1.2);
        EXPECT_LE(bound(StepQuantity::kSecond), 5e-6 * unit * 1.2);
      }
    }
  }
}

// Where the step is a few roundings of double, so is the replay, and either may
// fuse what the other does not: twice the bound of one, and honest steps come
// near it.
TEST(StepFormula, StepsInDoubleAreWithinTwiceTheirOwnRoundings) {
  const auto largest = [](StepOrder order, StepRule rule, double wrong_lr) {
    Draw draw(13);
    const StepFormula formula(rule, SettingOf(DType::kF64, 3));
    rule.lr *= wrong_lr;
    const StepIn<double> step(order, rule, 3, DType::kF64);
    double out = 0;
    for (int i = 0; i < 4000; ++i) {
      StateIn<double> before;
      before.parameter = draw.Signed<double>(-2, 0);
      before.first = draw.Signed<double>(-2, 1);
      before.second = draw.Power(-4, 0);
      const auto gradient = draw.Signed<double>(-2, 1);
      out = std::fmax(
          out, Headroom(formula, ElementOf(before, gradient,
                                           step.After(before, gradient))));
    }
    return out;
  };
  StepRule plain = Sgd();
  plain.momentum = plain.dampening = plain.weight_decay = 0;
  StepRule nesterov = Sgd();
  nesterov.dampening = 0;
  nesterov.nesterov = true;
  StepRule up = Sgd();
  up.maximize = true;
  for (const StepRule& rule : {plain, Sgd(), nesterov, up, AdamW()}) {
    for (const StepOrder order : kStepOrders) {
      const double honest = largest(order, rule, 1);
      EXPECT_LE(honest, 1);
      // More than what the bound of one side alone allows.
      if (order == StepOrder::kFusedFma &&
          rule.algorithm == StepAlgorithm::kSgd) {
        EXPECT_GT(honest, 0.5);
      }
      EXPECT_GT(largest(order, rule, 1 + 1e-6), 1e5);
      EXPECT_GT(largest(order, rule, 1 + 1e-12), 1);
    }
  }
}

// A step that is wrong by little, of ordinary values: each is seen in some
// element of a hundred.
TEST(StepFormula, WrongStepsAreOut) {
  struct Wrong {
    const char* what;
    StepRule rule;
    int count;
  };
  std::vector<Wrong> wrong;
  const auto add = [&](const char* what, auto change, int count = 100) {
    wrong.push_back({what, AdamW(), count});
    change(wrong.back().rule);
  };
  add("decay", [](StepRule& r) { r.weight_decay = 0.11; });
  add("no decay", [](StepRule& r) { r.weight_decay = 0; });
  add("coupled", [](StepRule& r) { r.decoupled = false; });
  add("lr", [](StepRule& r) { r.lr *= 1.001; });
  add("eps", [](StepRule& r) { r.eps = 1e-6; });
  add("beta1", [](StepRule& r) { r.beta1 = 0.90001; });
  add("beta2", [](StepRule& r) { r.beta2 = 0.998; });
  add(
      "count", [](StepRule&) {}, 101);
  add("maximize", [](StepRule& r) { r.maximize = true; });
  for (const Wrong& w : wrong) {
    Draw draw(11);
    const StepFormula formula(AdamW(), SettingOf(DType::kF32, 100));
    for (const StepOrder order : kStepOrders) {
      const FloatStep step(order, w.rule, w.count, DType::kF32);
      double worst = 0;
      for (int i = 0; i < 100; ++i) {
        StepState before;
        before.parameter = draw.Signed(-2, 0);
        before.first = draw.Signed(-4, -3);
        before.second = static_cast<float>(draw.Power(-8, -6));
        const float gradient = draw.Signed(-4, -3);
        worst = std::fmax(
            worst, Headroom(formula, ElementOf(before, gradient,
                                               step.After(before, gradient))));
      }
      EXPECT_GT(worst, 1) << w.what << " " << static_cast<int>(order);
    }
  }
}

TEST(StepFormula, ALearningRateOfZeroMovesNothing) {
  StepRule rule = AdamW();
  rule.lr = 0;
  const StepFormula formula(rule, SettingOf(DType::kF32, 5));
  StepElement element = {};
  element[At(StepField::kParameter)] = 0.5;
  element[At(StepField::kFirstAfter)] = 1e-3;
  element[At(StepField::kSecondAfter)] = 1e-6;
  const ExpectedValue expected =
      formula.Expect(StepQuantity::kParameter, element);
  EXPECT_EQ(expected.value, 0.5);
  EXPECT_LT(expected.bound, 1e-6);
}

TEST(StepFormula, OtherDTypesOfStateRoundOnceMore) {
  StepSetting setting = SettingOf(DType::kF32, 10);
  setting.first = DType::kBF16;
  setting.second = DType::kF16;
  const StepFormula formula(AdamW(), setting);
  const FloatStep step(StepOrder::kFused, AdamW(), 10, DType::kF32);
  Draw draw(5);
  double worst_plain = 0;
  for (int i = 0; i < 2000; ++i) {
    StepState before;
    before.parameter = draw.Signed(-2, 0);
    before.first = Stored(draw.Signed(-4, 2), DType::kBF16);
    before.second = Stored(static_cast<float>(draw.Power(-6, 3)), DType::kF16);
    const float gradient = draw.Signed(-4, 2);
    StepState after = step.After(before, gradient);  // from unrounded moments
    after.first = Stored(after.first, DType::kBF16);
    after.second = Stored(after.second, DType::kF16);
    const StepElement element = ElementOf(before, gradient, after);
    ASSERT_LE(Headroom(formula, element), 1);
    const StepFormula plain(AdamW(), SettingOf(DType::kF32, 10));
    worst_plain = std::fmax(worst_plain, Headroom(plain, element));
  }
  EXPECT_GT(worst_plain, 1);
}

// Twenty-four roundings of a format of 8 bits are more than a whole: a bound
// that takes n u for small turns negative there, and admits everything.
TEST(StepFormula, StateOfEightBitsHasABound) {
  for (const DType dtype : {DType::kF8E4M3FN, DType::kF8E5M2}) {
    StepSetting setting = SettingOf(DType::kF32, 10);
    setting.first = dtype;
    const StepFormula formula(AdamW(), setting);
    StepElement element = {};
    element[At(StepField::kFirst)] = 1;
    element[At(StepField::kGradient)] = 1;
    const ExpectedValue expected =
        formula.Expect(StepQuantity::kFirst, element);
    EXPECT_GT(expected.bound, UnitRoundoff(dtype));
    EXPECT_LT(expected.bound, 3 * UnitRoundoff(dtype));
    EXPECT_EQ(StepHeadroom(-1, expected), 2 / expected.bound);
  }
}

class StepKernel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(LimitInstructionSet(GetParam()).ok()); }
  void TearDown() override { EXPECT_TRUE(LimitInstructionSet("").ok()); }
};

// Bits of all quantities and headrooms of random elements and rules, one
// element at a time or many.
std::vector<uint64_t> RandomSteps(size_t at_once) {
  std::vector<uint64_t> out;
  const auto put = [&](const std::vector<double>& values) {
    for (const double x : values) {
      out.push_back(std::isnan(x) ? 1 : std::bit_cast<uint64_t>(x));
    }
  };
  Draw draw(5);
  for (int round = 0; round < 200; ++round) {
    const StepRule rule = draw.Rule();
    StepSetting setting =
        SettingOf(round % 2 == 0 ? DType::kF32 : DType::kBF16, 7);
    setting.copy = DType::kF16;
    setting.gradient_scale = 0.5;
    SetClip(1, 2, DType::kF32, &setting);
    const StepFormula formula(rule, setting);
    constexpr size_t kCount = 37;
    std::array<std::vector<double>, kStepFields> fields;
    for (auto& field : fields) {
      for (size_t i = 0; i < kCount; ++i) {
        field.push_back(draw.Chance(0.02)
                            ? std::numeric_limits<double>::infinity()
                            : static_cast<double>(draw.Extreme()));
      }
    }
    for (const StepQuantity quantity : formula.quantities()) {
      std::vector<double> value(kCount);
      std::vector<double> bound(kCount);
      std::vector<double> headroom(kCount);
      for (size_t i = 0; i < kCount; i += at_once) {
        const size_t count = std::min(at_once, kCount - i);
        StepColumns columns = {};
        for (size_t f = 0; f < kStepFields; ++f) columns[f] = &fields[f][i];
        ExpectAfterStep(formula.constants(), quantity, columns, count,
                        &value[i], &bound[i]);
        HeadroomsOfStep(&fields[At(ResultOf(quantity))][i], &value[i],
                        &bound[i], count, &headroom[i]);
      }
      put(value);
      put(bound);
      put(headroom);
    }
  }
  return out;
}

TEST_P(StepKernel, GivesTheSameBitsHoweverManyAtOnce) {
  const std::vector<uint64_t> all = RandomSteps(37);
  EXPECT_EQ(all, RandomSteps(1));
  EXPECT_EQ(all, RandomSteps(16));
  ASSERT_TRUE(LimitInstructionSet(InstructionSets().back()).ok());
  EXPECT_EQ(all, RandomSteps(37));
}

TEST_P(StepKernel, RoundsACopyAsItsFormatDoes) {
  Draw draw(9);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16,
                            DType::kF8E4M3FN, DType::kF8E5M2, DType::kF64}) {
    StepSetting setting = SettingOf(DType::kF64, 1);
    setting.copy = dtype;
    const StepFormula formula(AdamW(), setting);
    const FloatRange range = RangeOf(dtype);
    StepElement element = {};
    double& x = element[At(StepField::kParameterAfter)];
    const auto same = [&] {
      const double expected = RoundTo(x, dtype);
      const double value = formula.Expect(StepQuantity::kCopy, element).value;
      if (std::isnan(expected)) return std::isnan(value);
      return std::bit_cast<uint64_t>(expected) ==
             std::bit_cast<uint64_t>(value);
    };
    for (int i = 0; i < 3000; ++i) {
      x = (draw.Chance(0.5) ? 1 : -1) * draw.Power(-50, 40);
      ASSERT_TRUE(same()) << x << " " << static_cast<int>(dtype);
      // Ties, of all binades and of denormals.
      x = std::ldexp(std::floor(draw.Between(0, 4096)) + 0.5,
                     static_cast<int>(draw.Between(-180, 130)));
      ASSERT_TRUE(same()) << x << " " << static_cast<int>(dtype);
    }
    for (const double edge :
         {0.0, -0.0, range.largest, range.largest * (1 + 0x1p-30),
          range.largest * 1.1, range.step / 2, range.step * 0.51, range.tiny,
          std::numeric_limits<double>::infinity(), 1e308, 5e-324,
          std::numeric_limits<double>::quiet_NaN()}) {
      for (const double sign : {1.0, -1.0}) {
        x = sign * edge;
        ASSERT_TRUE(same()) << x << " " << static_cast<int>(dtype);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, StepKernel,
                         testing::ValuesIn(InstructionSets()),
                         [](const auto& set) { return set.param; });

TEST(StepFormula, GradientIsScaledAndClipped) {
  StepRule rule = Sgd();
  rule.momentum = rule.weight_decay = rule.dampening = 0;
  rule.lr = 1;
  StepSetting setting = SettingOf(DType::kF32, 1);
  setting.gradient_scale = 0.25;
  SetClip(1, 4, DType::kF32, &setting);
  EXPECT_EQ(setting.clip, 1 / (4 + 1e-6));
  StepElement element = {};
  element[At(StepField::kGradient)] = 32;
  const auto of = [&](const StepRule& r, const StepSetting& s) {
    return StepFormula(r, s).Expect(StepQuantity::kParameter, element);
  };
  EXPECT_NEAR(of(rule, setting).value, -2, 1e-6);
  EXPECT_GT(of(rule, setting).bound, 2e-7);
  EXPECT_LT(of(rule, setting).bound, 4e-6);
  SetClip(1, 0.5, DType::kF32, &setting);
  EXPECT_EQ(setting.clip, 1);
  EXPECT_EQ(setting.clip_error, 0);
  // Norm and limit are nearly equal: whether it is clipped is open.
  SetClip(1, 1 - 1e-6, DType::kF32, &setting);
  EXPECT_EQ(setting.clip, 1);
  EXPECT_GT(setting.clip_error, 0);
  rule.clip_value = 3;
  setting = SettingOf(DType::kF32, 1);
  EXPECT_EQ(of(rule, setting).value, -3);
}

TEST(StepHeadroom, OfWhatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(StepHeadroom(nan, {nan, 1}), 0);
  EXPECT_EQ(StepHeadroom(infinity, {nan, 1}), 0);
  EXPECT_EQ(StepHeadroom(1, {nan, 1}), infinity);
  EXPECT_EQ(StepHeadroom(nan, {1, 1}), infinity);
  EXPECT_EQ(StepHeadroom(nan, {1, infinity}), 0);
  EXPECT_EQ(StepHeadroom(1, {1, 0}), 0);
  EXPECT_EQ(StepHeadroom(2, {1, 0}), infinity);
  EXPECT_EQ(StepHeadroom(2, {1, 2}), 0.5);
}

// A sample that was sent here may name it.
TEST(StepFormula, ACountIsNoQuantityOfElements) {
  const StepFormula formula(AdamW(), SettingOf(DType::kF32, 5));
  EXPECT_TRUE(std::isinf(formula.Expect(StepQuantity::kStepCount, {}).bound));
}

TEST(StepFormula, NotFiniteMomentsGiveNotFiniteParameters) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const StepFormula formula(AdamW(), SettingOf(DType::kF32, 5));
  StepElement element = {};
  element[At(StepField::kFirstAfter)] = nan;
  EXPECT_TRUE(
      std::isnan(formula.Expect(StepQuantity::kParameter, element).value));
  element[At(StepField::kGradient)] = nan;
  EXPECT_TRUE(std::isnan(formula.Expect(StepQuantity::kFirst, element).value));
  EXPECT_TRUE(std::isnan(formula.Expect(StepQuantity::kSecond, element).value));
  element[At(StepField::kLargest)] = nan;
  EXPECT_TRUE(
      std::isinf(formula.Expect(StepQuantity::kLargest, element).bound));
}

// 2e19 squared is no float, though a thousandth of it is.
TEST(StepFormula, WhatMayOverflowOnTheWayIsNotJudged) {
  const StepFormula formula(AdamW(), SettingOf(DType::kF32, 5));
  StepElement element = {};
  element[At(StepField::kGradient)] = 2e19;
  EXPECT_TRUE(std::isinf(formula.Expect(StepQuantity::kSecond, element).bound));
  element[At(StepField::kGradient)] = 1e18;
  EXPECT_FALSE(
      std::isinf(formula.Expect(StepQuantity::kSecond, element).bound));
}

}  // namespace
}  // namespace ttrace::step_formula_test
