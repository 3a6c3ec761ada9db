#include "src/measure/step_formula.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/numeric/round_to.h"

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Terms of second order: no formula below has more than this many roundings in
// a row, so that (1 + u)^n - 1 <= n u / (1 - n u).
constexpr double kRoundings = 24;

// A root and a quotient of CUDA's fast intrinsics are off by up to 2 and 4
// units of round-off of fp32, not by 1. Tensor operations of a shorter dtype
// compute in fp32 and round once.
constexpr double kRootMore = 1;
constexpr double kQuotientMore = 3;

// 1 - beta^n computed in float, from a rounded beta and with the float pow of
// a GPU: relative error, in units of round-off. beta^n is off by n (rounding of
// beta) + 8 (pow) + 8 |ln beta^n| (pow by exp2 and log2 in fast mathematics).
double CorrectionError(double beta, double count) {
  const double power = std::pow(beta, count);
  const double correction = 1 - power;
  if (power == 0 || !(correction > 0)) return 1;
  return (count + 8 - 8 * std::log(power)) * power / correction + 1;
}

ExpectedValue Anything() { return {0, kInfinity}; }

// How far the root of what is `error` from x may be from that of x.
double RootMoved(double x, double error) {
  const double most = std::sqrt(error);
  return x > 0 ? std::min(most, error / std::sqrt(x)) : most;
}

}  // namespace

StepField BeforeOf(StepQuantity quantity) {
  switch (quantity) {
    case StepQuantity::kFirst:
      return StepField::kFirst;
    case StepQuantity::kSecond:
      return StepField::kSecond;
    case StepQuantity::kLargest:
      return StepField::kLargest;
    case StepQuantity::kMomentum:
      return StepField::kMomentum;
    case StepQuantity::kCopy:
      return StepField::kCopy;
    default:
      return StepField::kParameter;
  }
}

void SetClip(double limit, double norm, DType dtype, StepSetting* setting) {
  setting->clip = 1;
  setting->clip_error = 0;
  const double coefficient = limit / (norm + 1e-6);
  // The sum, the quotient, and the norm as it was before it was recorded.
  const double error =
      4 * std::max(UnitRoundoff(dtype), UnitRoundoff(DType::kF32)) *
      coefficient;
  if (coefficient - error >= 1) return;  // x 1 is exact
  setting->clip = std::min(1.0, coefficient);
  setting->clip_error = error;
}

StepField ResultOf(StepQuantity quantity) {
  switch (quantity) {
    case StepQuantity::kFirst:
      return StepField::kFirstAfter;
    case StepQuantity::kSecond:
      return StepField::kSecondAfter;
    case StepQuantity::kLargest:
      return StepField::kLargestAfter;
    case StepQuantity::kMomentum:
      return StepField::kMomentumAfter;
    case StepQuantity::kCopy:
      return StepField::kCopyAfter;
    default:
      return StepField::kParameterAfter;
  }
}

StepFormula::Format StepFormula::FormatOf(DType dtype) {
  const FloatRange range = RangeOf(dtype);
  // Kernels may flush what is below full precision to zero; those of fp16,
  // which is converted to and from fp32, keep it.
  return {UnitRoundoff(dtype), dtype == DType::kF16 ? range.step : range.tiny,
          range.largest};
}

StepFormula::StepFormula(const StepRule& rule, const StepSetting& setting)
    : rule_(rule), setting_(setting) {
  own_ = FormatOf(setting.parameter);
  gradient_ = FormatOf(setting.gradient);
  gradient_ = {std::max(gradient_.unit, own_.unit),
               std::max(gradient_.tiny, own_.tiny),
               std::min(gradient_.largest, own_.largest)};
  first_ = FormatOf(setting.first);
  second_ = FormatOf(setting.second);
  scalar_ = std::min(own_.unit, UnitRoundoff(DType::kF32));
  if (rule.algorithm == StepAlgorithm::kSgd) {
    if (rule.momentum != 0) quantities_.push_back(StepQuantity::kMomentum);
  } else {
    quantities_ = {StepQuantity::kFirst, StepQuantity::kSecond};
    if (rule.amsgrad) quantities_.push_back(StepQuantity::kLargest);
    if (rule.bias_correction) {
      correction1_ = 1 - std::pow(rule.beta1, setting.count);
      correction2_ = 1 - std::pow(rule.beta2, setting.count);
      correction_error_ = CorrectionError(rule.beta1, setting.count) * scalar_;
      root_error_ = CorrectionError(rule.beta2, setting.count) * scalar_ / 2;
    }
  }
  quantities_.push_back(StepQuantity::kParameter);
  quantities_.push_back(StepQuantity::kCopy);
}

std::vector<StepField> StepFormula::InputsOf(StepQuantity quantity) const {
  const bool coupled = rule_.weight_decay != 0 && !rule_.decoupled;
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
      if (setting_.first_step) return with_gradient({});
      return with_gradient({StepField::kMomentum});
    case StepQuantity::kCopy:
      return {StepField::kParameterAfter};
    case StepQuantity::kParameter:
      break;
  }
  std::vector<StepField> out = {StepField::kParameter};
  if (rule_.algorithm == StepAlgorithm::kAdam) {
    out.push_back(StepField::kFirstAfter);
    out.push_back(rule_.amsgrad ? StepField::kLargestAfter
                                : StepField::kSecondAfter);
    return out;
  }
  if (rule_.momentum != 0) out.push_back(StepField::kMomentumAfter);
  if (rule_.momentum == 0 || rule_.nesterov) {
    out.push_back(StepField::kGradient);
  }
  return out;
}

ExpectedValue StepFormula::Finish(ExpectedValue x, DType stored) const {
  const Format format = FormatOf(stored);
  // The last operation's rounding is counted; that to a shorter dtype is not.
  if (format.unit > own_.unit) {
    x.bound += format.unit * (std::fabs(x.value) + x.bound) + format.tiny;
  }
  const double unit = std::max(format.unit, gradient_.unit);
  x.bound /= 1 - kRoundings * unit;
  const double largest = std::min(format.largest, own_.largest);
  if (std::isfinite(x.value) && std::fabs(x.value) + x.bound >= largest) {
    return Anything();
  }
  return x;
}

double StepFormula::Unstored(double stored, const Format& format) const {
  if (format.unit <= scalar_) return 0;
  return format.unit * std::fabs(stored) + format.tiny;
}

ExpectedValue StepFormula::Gradient(const StepElement& element) const {
  double x = element[static_cast<size_t>(StepField::kGradient)];
  double error = 0;
  if (rule_.clip_value)
    x = std::clamp(x, -*rule_.clip_value, *rule_.clip_value);
  if (setting_.gradient_scale != 1) {
    x *= setting_.gradient_scale;  // itself rounded
    error += 2 * gradient_.unit * std::fabs(x) + gradient_.tiny;
  }
  if (setting_.clip != 1 || setting_.clip_error != 0) {
    error = error * setting_.clip + setting_.clip_error * std::fabs(x);
    x *= setting_.clip;
    error += gradient_.unit * std::fabs(x) + gradient_.tiny;
  }
  // Converted to the arithmetic's dtype, if that is the shorter one.
  if (UnitRoundoff(setting_.gradient) < own_.unit) {
    error += own_.unit * std::fabs(x) + own_.tiny;
  }
  if (rule_.maximize) x = -x;
  if (rule_.weight_decay != 0 && !rule_.decoupled) {
    const double decay = rule_.weight_decay *
                         element[static_cast<size_t>(StepField::kParameter)];
    error += (scalar_ + own_.unit) * std::fabs(decay);
    x += decay;
    error += own_.unit * (std::fabs(x) + error) + own_.tiny;
  }
  if (std::isfinite(x) && std::fabs(x) + error >= gradient_.largest) {
    return Anything();
  }
  return {x, error};
}

// Two forms are in use, and the bound is that of the worse: two products and
// their sum, and before + taken x (x - before) or the same from the other end.
// 1 - decay computed in float from a rounded decay is off by one round-off of 1
// and not of itself.
ExpectedValue StepFormula::Average(double before, double decay, double taken,
                                   const ExpectedValue& x) const {
  ExpectedValue out;
  out.value = decay * before + taken * x.value;
  const double old_part = std::fabs(decay * before);
  const double new_part = std::fabs(taken * x.value);
  const double scale = std::max(1.0, std::fabs(taken));
  const double products = (scalar_ + own_.unit) * old_part +
                          scalar_ * scale * std::fabs(x.value) +
                          own_.unit * new_part;
  const double distance = std::fabs(x.value - before);
  const double moved = std::min(std::fabs(taken), std::fabs(decay)) * distance;
  const double towards = 2 * own_.unit * moved + scalar_ * scale * distance;
  out.bound = std::max(products, towards) + own_.unit * std::fabs(out.value) +
              std::fabs(taken) * x.bound + 3 * own_.tiny;
  return out;
}

ExpectedValue StepFormula::SecondMoment(const StepElement& element) const {
  const ExpectedValue g = Gradient(element);
  if (std::isinf(g.bound)) return g;
  ExpectedValue square;
  square.value = g.value * g.value;
  square.bound = 2 * std::fabs(g.value) * g.bound + g.bound * g.bound +
                 2 * own_.unit * square.value + own_.tiny;
  if (std::isfinite(square.value) &&
      square.value + square.bound >= RangeOf(DType::kF32).largest &&
      setting_.parameter != DType::kF64) {
    return Anything();
  }
  ExpectedValue out = Average(element[static_cast<size_t>(StepField::kSecond)],
                              rule_.beta2, 1 - rule_.beta2, square);
  // (taken x g) x g may underflow in its first product.
  out.bound += own_.tiny * std::fabs(g.value);
  return out;
}

ExpectedValue StepFormula::Momentum(const StepElement& element) const {
  const ExpectedValue g = Gradient(element);
  if (setting_.first_step || std::isinf(g.bound)) return g;
  return Average(element[static_cast<size_t>(StepField::kMomentum)],
                 rule_.momentum, 1 - rule_.dampening, g);
}

ExpectedValue StepFormula::AdamParameter(const StepElement& element) const {
  const double p = element[static_cast<size_t>(StepField::kParameter)];
  const double m = element[static_cast<size_t>(StepField::kFirstAfter)];
  const double v = element[static_cast<size_t>(
      rule_.amsgrad ? StepField::kLargestAfter : StepField::kSecondAfter)];
  const double u = own_.unit;
  const double s = scalar_;
  const double tiny = own_.tiny;
  const double step = std::fabs(rule_.lr) / correction1_;
  const double correction_root = std::sqrt(correction2_);
  const double root = std::sqrt(v) / correction_root;
  const double denominator = setting_.eps_inside_root
                                 ? std::sqrt(v / correction2_ + rule_.eps)
                                 : root + rule_.eps;

  // Of the denominator, relative: root, its correction, quotient, epsilon or
  // both divided by the step's size, sum.
  const double moved_root =
      RootMoved(v / correction2_, Unstored(v, second_) / correction2_ + tiny);
  if (std::isinf(Unstored(m, first_)) || std::isinf(Unstored(v, second_))) {
    return Anything();  // infinite only as they were stored
  }
  // No epsilon, and a moment that may be zero: whatever is divided by it.
  if (denominator <= moved_root) return Anything();
  double below =
      (u + kRootMore * s) + (root_error_ + 3 * s) + (u + kQuotientMore * s) + u;
  if (denominator > 0) {
    below += moved_root / denominator + 2 * tiny * (1 + step) / denominator;
  }
  // And of the whole quotient: learning rate, its correction and quotient, the
  // product with the moment, the second quotient.
  double relative = below + correction_error_ + 2 * s +
                    (s + kQuotientMore * s) + u + (u + kQuotientMore * s);
  if (!(relative < 0.5)) return Anything();
  relative /= 1 - relative;
  const double moved = rule_.lr / correction1_ * m / denominator;
  double error = relative * std::fabs(moved);
  if (denominator > 0) {
    error += step * Unstored(m, first_) / denominator +
             tiny * (1 + step) / denominator + tiny * step;
  }
  error += 2 * tiny;

  double kept = p;
  if (rule_.decoupled && rule_.weight_decay != 0) {
    const double decay = std::fabs(rule_.lr * rule_.weight_decay);
    kept = p * (1 - rule_.lr * rule_.weight_decay);
    // As p x (1 - d), and as part of what is taken off at once.
    error += std::fabs(p) * ((s + u) * (1 + decay) + 4 * (u + s) * decay);
  }
  ExpectedValue out;
  out.value = kept - moved;
  error += u * std::fabs(moved) + u * std::fabs(out.value);
  out.bound = error;
  const double largest = own_.largest;
  if (step >= largest || denominator >= largest ||
      (step > 0 && denominator >= largest * step) ||
      step * std::fabs(m) >= largest ||
      std::fabs(p) + std::fabs(moved) >= largest) {
    // What is not finite before the step is not finite after it.
    if (std::isfinite(p) && std::isfinite(m) && std::isfinite(v)) {
      return Anything();
    }
  }
  return out;
}

ExpectedValue StepFormula::SgdParameter(const StepElement& element) const {
  const double p = element[static_cast<size_t>(StepField::kParameter)];
  const double buffer =
      rule_.momentum == 0
          ? 0
          : element[static_cast<size_t>(StepField::kMomentumAfter)];
  ExpectedValue direction;
  if (rule_.momentum == 0 || rule_.nesterov) direction = Gradient(element);
  if (std::isinf(direction.bound)) return direction;
  if (rule_.momentum != 0) {
    const double part = (rule_.nesterov ? rule_.momentum : 1) * buffer;
    direction.value += part;
    direction.bound += Unstored(buffer, first_);
    // Infinite as it was stored, and not as it was computed with.
    if (std::isinf(direction.bound)) return Anything();
    if (rule_.nesterov) {
      direction.bound += (scalar_ + own_.unit) * std::fabs(part) +
                         own_.unit * std::fabs(direction.value) + 2 * own_.tiny;
    }
  }
  const double moved = rule_.lr * direction.value;
  ExpectedValue out;
  out.value = p - moved;
  out.bound = std::fabs(rule_.lr) * direction.bound +
              (scalar_ + own_.unit) * std::fabs(moved) +
              own_.unit * std::fabs(out.value) + 2 * own_.tiny;
  if (std::isfinite(p) && std::isfinite(direction.value) &&
      std::max(std::fabs(direction.value), std::fabs(p) + std::fabs(moved)) >=
          own_.largest) {
    return Anything();
  }
  return out;
}

ExpectedValue StepFormula::Expect(StepQuantity quantity,
                                  const StepElement& element) const {
  switch (quantity) {
    case StepQuantity::kStepCount:
      break;
    case StepQuantity::kFirst: {
      const ExpectedValue g = Gradient(element);
      if (std::isinf(g.bound)) return g;
      return Finish(Average(element[static_cast<size_t>(StepField::kFirst)],
                            rule_.beta1, 1 - rule_.beta1, g),
                    setting_.first);
    }
    case StepQuantity::kSecond:
      return Finish(SecondMoment(element), setting_.second);
    case StepQuantity::kLargest: {
      ExpectedValue out;
      const double old = element[static_cast<size_t>(StepField::kLargest)];
      const double now = element[static_cast<size_t>(StepField::kSecondAfter)];
      // Whether NaN is passed on depends on the maximum that is used.
      if (std::isnan(old) || std::isnan(now)) return Anything();
      out.value = std::max(old, now);
      // A choice rounds nothing, but the two may be stored differently.
      if (setting_.largest != setting_.second) {
        out.bound = Unstored(out.value, second_) +
                    Unstored(out.value, FormatOf(setting_.largest));
      }
      return out;
    }
    case StepQuantity::kMomentum:
      return Finish(Momentum(element), setting_.first);
    case StepQuantity::kParameter:
      return Finish(rule_.algorithm == StepAlgorithm::kAdam
                        ? AdamParameter(element)
                        : SgdParameter(element),
                    setting_.parameter);
    case StepQuantity::kCopy:
      return {RoundTo(element[static_cast<size_t>(StepField::kParameterAfter)],
                      setting_.copy),
              0};
  }
  return Anything();
}

double StepHeadroom(double recorded, const ExpectedValue& expected) {
  const double value = expected.value;
  // Inf and NaN turn into each other with the order of a formula's terms.
  if (!std::isfinite(value)) return std::isfinite(recorded) ? kInfinity : 0;
  if (std::isinf(expected.bound)) return 0;
  if (!std::isfinite(recorded)) return kInfinity;
  const double error = std::fabs(recorded - value);
  return error == 0 ? 0 : error / expected.bound;
}

}  // namespace ttrace
