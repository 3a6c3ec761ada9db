#include "src/step/step_formula.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/numeric/round_to.h"

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// 1 - beta^n computed in float, from a rounded beta and with the float pow of
// a GPU: relative error, in units of round-off. beta^n is off by n (rounding of
// beta) + 8 (pow) + 8 |ln beta^n| (pow by exp2 and log2 in fast mathematics).
double CorrectionError(double beta, double count) {
  const double power = std::pow(beta, count);
  const double correction = 1 - power;
  if (power == 0 || !(correction > 0)) return 1;
  return (count + 8 - 8 * std::log(power)) * power / correction + 1;
}

// No formula has more than this many roundings in a row: what a sum of first
// order counts as n u may be (1 + u)^n - 1.
constexpr double kRoundings = 24;

double Growth(double unit) {
  if (unit == 0) return 1;
  return std::expm1(kRoundings * std::log1p(unit)) / (kRoundings * unit);
}

// The replay computes in double, and rounds as any other run does: twice
// double's round-off where that is what the run computes in.
constexpr double kReplayUnit = 0x1p-53;

// Kernels may flush what is below full precision to zero; those of fp16, which
// is converted to and from fp32, keep it.
StepConstants::Format FormatOf(DType dtype) {
  const FloatRange range = RangeOf(dtype);
  const double unit = UnitRoundoff(dtype);
  return {unit, dtype == DType::kF16 ? range.step : range.tiny, range.largest,
          Growth(unit)};
}

// Of the run's arithmetic and the replay's. Sums of first order, of one unit
// and of the other, are one sum of both.
StepConstants::Format OfBoth(StepConstants::Format format) {
  format.unit += kReplayUnit;
  format.growth = Growth(format.unit);
  return format;
}

}  // namespace

void SetClip(double limit, double norm, DType dtype, StepSetting* setting) {
  setting->clip = 1;
  setting->clip_error = 0;
  const double coefficient = limit / (norm + 1e-6);
  // The sum, the quotient, and the norm as it was before it was recorded.
  const double error =
      4 *
      (std::max(UnitRoundoff(dtype), UnitRoundoff(DType::kF32)) + kReplayUnit) *
      coefficient;
  if (coefficient - error >= 1) return;  // x 1 is exact
  setting->clip = std::min(1.0, coefficient);
  setting->clip_error = error;
}

StepFormula::StepFormula(const StepRule& rule, const StepSetting& setting) {
  StepConstants& c = constants_;
  c.rule = rule;
  c.setting = setting;
  c.own = OfBoth(FormatOf(setting.parameter));
  const StepConstants::Format gradient = OfBoth(FormatOf(setting.gradient));
  c.gradient_is_shortened = gradient.unit < c.own.unit;
  c.gradient = {std::max(gradient.unit, c.own.unit),
                std::max(gradient.tiny, c.own.tiny),
                std::min(gradient.largest, c.own.largest),
                std::max(gradient.growth, c.own.growth)};
  c.first = FormatOf(setting.first);
  c.second = FormatOf(setting.second);
  c.largest = FormatOf(setting.largest);
  c.square_largest = setting.parameter == DType::kF64
                         ? kInfinity
                         : RangeOf(DType::kF32).largest;
  c.scalar =
      std::min(UnitRoundoff(setting.parameter), UnitRoundoff(DType::kF32)) +
      kReplayUnit;
  if (Info(setting.copy).floating && setting.copy != DType::kF64) {
    c.copy_precision = Info(setting.copy).precision;
    c.copy_min_exponent = MinExponent(setting.copy);
    c.copy_largest = RangeOf(setting.copy).largest;
    c.copy_has_infinity = setting.copy != DType::kF8E4M3FN;
  }

  if (rule.algorithm == StepAlgorithm::kSgd) {
    if (rule.momentum != 0) quantities_.push_back(StepQuantity::kMomentum);
  } else {
    quantities_ = {StepQuantity::kFirst, StepQuantity::kSecond};
    if (rule.amsgrad) quantities_.push_back(StepQuantity::kLargest);
    if (rule.bias_correction) {
      c.correction1 = 1 - std::pow(rule.beta1, setting.count);
      c.correction2 = 1 - std::pow(rule.beta2, setting.count);
      c.correction_error =
          CorrectionError(rule.beta1, setting.count) * c.scalar;
      c.root_error = CorrectionError(rule.beta2, setting.count) * c.scalar / 2;
    }
  }
  quantities_.push_back(StepQuantity::kParameter);
  quantities_.push_back(StepQuantity::kCopy);
}

std::vector<StepField> StepFormula::InputsOf(StepQuantity quantity) const {
  const StepRule& rule = constants_.rule;
  const bool coupled = rule.weight_decay != 0 && !rule.decoupled;
  const auto with_gradient = [&](std::vector<StepField> fields) {
    fields.push_back(StepField::kGradient);
    if (coupled) fields.push_back(StepField::kParameter);
    return fields;
  };
  switch (quantity) {
    case StepQuantity::kStepCount:
      return {};
    case StepQuantity::kFirst:
      return with_gradient({StepField::kFirst});
    case StepQuantity::kSecond:
      return with_gradient({StepField::kSecond});
    case StepQuantity::kLargest:
      return {StepField::kLargest, StepField::kSecondAfter};
    case StepQuantity::kMomentum:
      if (constants_.setting.first_step) return with_gradient({});
      return with_gradient({StepField::kMomentum});
    case StepQuantity::kCopy:
      return {StepField::kParameterAfter};
    case StepQuantity::kParameter:
      break;
  }
  std::vector<StepField> out = {StepField::kParameter};
  if (rule.algorithm == StepAlgorithm::kAdam) {
    out.push_back(StepField::kFirstAfter);
    out.push_back(rule.amsgrad ? StepField::kLargestAfter
                               : StepField::kSecondAfter);
    return out;
  }
  if (rule.momentum != 0) out.push_back(StepField::kMomentumAfter);
  if (rule.momentum == 0 || rule.nesterov) {
    out.push_back(StepField::kGradient);
  }
  return out;
}

ExpectedValue StepFormula::Expect(StepQuantity quantity,
                                  const StepElement& element) const {
  StepColumns columns;
  for (size_t f = 0; f < kStepFields; ++f) columns[f] = &element[f];
  ExpectedValue out;
  ExpectAfterStep(constants_, quantity, columns, 1, &out.value, &out.bound);
  return out;
}

double StepHeadroom(double recorded, const ExpectedValue& expected) {
  double headroom = 0;
  HeadroomsOfStep(&recorded, &expected.value, &expected.bound, 1, &headroom);
  return headroom;
}

}  // namespace ttrace
