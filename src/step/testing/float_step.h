// For tests and benchmarks: optimizer steps in float or double, as frameworks'
// kernels compute them, written down without a look at step_kernel.cc.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_STEP_TESTING_FLOAT_STEP_H_
#define TTRACE_SRC_STEP_TESTING_FLOAT_STEP_H_

#include <cmath>

#include "src/numeric/round_to.h"
#include "src/step/step_rule.h"
#include "ttrace/dtype.h"

namespace ttrace {

// A rule as people use it.
inline StepRule AdamW() {
  StepRule rule;
  rule.lr = 1e-3;
  rule.beta1 = 0.9;
  rule.beta2 = 0.999;
  rule.eps = 1e-8;
  rule.weight_decay = 0.1;
  rule.decoupled = true;
  return rule;
}

// In which order, and in what, a kernel computes.
enum class StepOrder {
  kTensors,     // torch for-loop and foreach: one operation after the other
  kCapturable,  // the same with the step's size in the denominator
  kFused,       // registers are not stored, results stored once
  kFusedFma,    // with fused multiply-adds
  kApex,        // moments are corrected before the root; decay in the update
};
inline constexpr StepOrder kStepOrders[] = {
    StepOrder::kTensors, StepOrder::kCapturable, StepOrder::kFused,
    StepOrder::kFusedFma, StepOrder::kApex};

template <typename Real>
struct StateIn {
  Real parameter = 0;
  Real first = 0;  // or the momentum buffer
  Real second = 0;
  Real largest = 0;
};

// `dtype`: of what is stored.
template <typename Real>
class StepIn {
 public:
  using State = StateIn<Real>;

  StepIn(StepOrder order, const StepRule& rule, int count, DType dtype)
      : order_(order), rule_(rule), count_(count), dtype_(dtype) {}

  // `gradient`: clipped. `first_step` of SGD: the buffer is made.
  State After(const State& before, Real gradient,
              bool first_step = false) const {
    State out = before;
    Real g = rule_.maximize ? -gradient : gradient;
    if (rule_.weight_decay != 0 && !rule_.decoupled) {
      g = Op(MulAdd(static_cast<Real>(rule_.weight_decay), out.parameter, g));
    }
    if (rule_.algorithm == StepAlgorithm::kAdam) {
      Adam(g, &out);
    } else {
      Sgd(g, first_step, &out);
    }
    return out;
  }

 private:
  bool fused() const {
    return order_ != StepOrder::kTensors && order_ != StepOrder::kCapturable;
  }
  Real Stored(Real x) const {
    return static_cast<Real>(RoundTo(static_cast<double>(x), dtype_));
  }
  // The result of one operation on tensors.
  Real Op(Real x) const { return fused() ? x : Stored(x); }
  Real MulAdd(Real a, Real b, Real c) const {
    return order_ == StepOrder::kFusedFma ? std::fma(a, b, c) : a * b + c;
  }

  void Adam(Real g, State* s) const {
    const auto b1 = static_cast<Real>(rule_.beta1);
    const auto b2 = static_cast<Real>(rule_.beta2);
    const bool in_double =
        order_ == StepOrder::kTensors || order_ == StepOrder::kFused;
    const Real w1 = in_double ? static_cast<Real>(1 - rule_.beta1) : 1 - b1;
    const Real w2 = in_double ? static_cast<Real>(1 - rule_.beta2) : 1 - b2;
    const auto lr = static_cast<Real>(rule_.lr);
    const auto decay = static_cast<Real>(rule_.weight_decay);
    const auto eps = static_cast<Real>(rule_.eps);
    const bool decays = rule_.decoupled && rule_.weight_decay != 0;
    if (decays && order_ != StepOrder::kApex) {
      s->parameter = Op(s->parameter *
                        static_cast<Real>(1 - rule_.lr * rule_.weight_decay));
    }
    if (order_ == StepOrder::kApex) {
      s->first = b1 * s->first + w1 * g;
      s->second = b2 * s->second + w2 * g * g;
    } else {
      s->first = Op(w1 < Real{0.5} ? MulAdd(w1, g - s->first, s->first)
                                   : g - (g - s->first) * (1 - w1));
      s->second = Op(MulAdd(w2 * g, g, Op(b2 * s->second)));
    }
    Real v = s->second;
    if (rule_.amsgrad) {
      s->largest = std::fmax(s->largest, s->second);
      v = s->largest;
    }
    double c1 = 1;
    double c2 = 1;
    if (rule_.bias_correction) {
      c1 = in_double ? 1 - std::pow(rule_.beta1, count_)
                     : static_cast<double>(
                           1 - std::pow(b1, static_cast<Real>(count_)));
      c2 = in_double ? 1 - std::pow(rule_.beta2, count_)
                     : static_cast<double>(
                           1 - std::pow(b2, static_cast<Real>(count_)));
    }
    const auto f1 = static_cast<Real>(c1);
    const auto f2 = static_cast<Real>(c2);
    if (order_ == StepOrder::kApex) {
      const Real update = (s->first / f1) / (std::sqrt(v / f2) + eps) +
                          (decays ? decay * s->parameter : Real{0});
      s->parameter -= lr * update;
    } else if (order_ == StepOrder::kCapturable) {
      const Real size = -(lr / f1);
      const Real below =
          Op(Op(Op(std::sqrt(v)) / (std::sqrt(f2) * size)) + eps / size);
      s->parameter = Op(s->parameter + s->first / below);
    } else {
      const auto root = static_cast<Real>(std::sqrt(c2));
      const auto size = static_cast<Real>(-rule_.lr / c1);
      const Real below = Op(Op(Op(std::sqrt(v)) / root) + eps);
      s->parameter = Op(order_ == StepOrder::kFusedFma
                            ? std::fma(size, s->first / below, s->parameter)
                            : s->parameter + size * s->first / below);
    }
    Store(s);
  }

  void Sgd(Real g, bool first_step, State* s) const {
    const auto momentum = static_cast<Real>(rule_.momentum);
    const auto taken = static_cast<Real>(1 - rule_.dampening);
    Real direction = g;
    if (rule_.momentum != 0) {
      s->first = first_step ? g : Op(MulAdd(taken, g, Op(momentum * s->first)));
      direction = rule_.nesterov ? Op(MulAdd(momentum, s->first, g)) : s->first;
    }
    s->parameter =
        Op(MulAdd(-static_cast<Real>(rule_.lr), direction, s->parameter));
    Store(s);
  }

  void Store(State* s) const {
    s->parameter = Stored(s->parameter);
    s->first = Stored(s->first);
    s->second = Stored(s->second);
    s->largest = Stored(s->largest);
  }

  StepOrder order_;
  StepRule rule_;
  int count_;
  DType dtype_;
};

using StepState = StateIn<float>;
using FloatStep = StepIn<float>;

}  // namespace ttrace

#endif  // TTRACE_SRC_STEP_TESTING_FLOAT_STEP_H_
