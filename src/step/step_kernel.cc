// Built with -ffp-contract=off: see the header.

#include "src/step/step_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/numeric/fixed_vectors.h"

// Highway compiles the code between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per instruction set by re-including this file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/step/step_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <hwy/highway.h>

// The namespaces of instruction sets are shared by all kernels: names need one
// of their own.
HWY_BEFORE_NAMESPACE();
namespace ttrace::steps {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<double, kStepLine>;
using Bits = hn::RebindToSigned<Tag>;
#if HWY_TARGET == HWY_SCALAR
inline constexpr size_t kLanes = 1;
#else
static_assert(!HWY_HAVE_SCALABLE, "fixed_vectors.h disables them");
inline constexpr size_t kLanes =
    HWY_MIN(HWY_MAX_BYTES / sizeof(double), kStepLine);
#endif

// So that formulas read as formulas.
struct Mask {
  hn::Mask<Tag> m;
};
HWY_INLINE Mask operator&(Mask a, Mask b) { return {hn::And(a.m, b.m)}; }
HWY_INLINE Mask operator|(Mask a, Mask b) { return {hn::Or(a.m, b.m)}; }
HWY_INLINE Mask operator!(Mask a) { return {hn::Not(a.m)}; }

struct Lanes {
  HWY_INLINE Lanes(hn::Vec<Tag> lanes) : v(lanes) {}    // NOLINT
  HWY_INLINE Lanes(double x) : v(hn::Set(Tag(), x)) {}  // NOLINT
  hn::Vec<Tag> v;
};
HWY_INLINE Lanes operator+(Lanes a, Lanes b) { return hn::Add(a.v, b.v); }
HWY_INLINE Lanes operator-(Lanes a, Lanes b) { return hn::Sub(a.v, b.v); }
HWY_INLINE Lanes operator*(Lanes a, Lanes b) { return hn::Mul(a.v, b.v); }
HWY_INLINE Lanes operator/(Lanes a, Lanes b) { return hn::Div(a.v, b.v); }
HWY_INLINE Mask operator<(Lanes a, Lanes b) { return {hn::Lt(a.v, b.v)}; }
HWY_INLINE Mask operator<=(Lanes a, Lanes b) { return {hn::Le(a.v, b.v)}; }
HWY_INLINE Mask operator>(Lanes a, Lanes b) { return b < a; }
HWY_INLINE Mask operator>=(Lanes a, Lanes b) { return b <= a; }
HWY_INLINE Mask operator==(Lanes a, Lanes b) { return {hn::Eq(a.v, b.v)}; }
HWY_INLINE Lanes Select(Mask where, Lanes a, Lanes b) {
  return hn::IfThenElse(where.m, a.v, b.v);
}
HWY_INLINE Lanes Abs(Lanes a) { return hn::Abs(a.v); }
HWY_INLINE Lanes Root(Lanes a) { return hn::Sqrt(a.v); }
// As std::min and std::max: the first where one is NaN.
HWY_INLINE Lanes Least(Lanes a, Lanes b) { return Select(b < a, b, a); }
HWY_INLINE Lanes Most(Lanes a, Lanes b) { return Select(a < b, b, a); }
HWY_INLINE Mask IsFinite(Lanes a) {
  return Abs(a) <= std::numeric_limits<double>::max();
}
HWY_INLINE Mask IsInfinite(Lanes a) {
  return Abs(a) == std::numeric_limits<double>::infinity();
}
HWY_INLINE Mask IsNaN(Lanes a) { return !(a == a); }

struct Expected {
  Lanes value;
  Lanes bound;
};
HWY_INLINE Expected Select(Mask where, Expected a, Expected b) {
  return {Select(where, a.value, b.value), Select(where, a.bound, b.bound)};
}
HWY_INLINE Expected Anything() {
  return {0.0, std::numeric_limits<double>::infinity()};
}

using Format = StepConstants::Format;

// A root and a quotient of CUDA's fast intrinsics are off by up to 2 and 4
// units of round-off of fp32, not by 1. Tensor operations of a shorter dtype
// compute in fp32 and round once.
inline constexpr double kRootMore = 1;
inline constexpr double kQuotientMore = 3;

// How far the root of what is `error` from x may be from that of x.
HWY_INLINE Lanes RootMoved(Lanes x, Lanes error) {
  const Lanes most = Root(error);
  return Select(x > 0.0, Least(most, error / Root(x)), most);
}

class Elements {
 public:
  HWY_INLINE Elements(const StepConstants& constants,
                      const StepColumns& columns, size_t at)
      : c_(constants), columns_(columns), at_(at) {}

  HWY_INLINE Expected Expect(StepQuantity quantity) const {
    switch (quantity) {
      case StepQuantity::kStepCount:
        break;
      case StepQuantity::kFirst: {
        const Expected g = Gradient();
        return Select(IsInfinite(g.bound), g,
                      Finish(Average(At(StepField::kFirst), c_.rule.beta1,
                                     1 - c_.rule.beta1, g),
                             c_.first));
      }
      case StepQuantity::kSecond:
        return Finish(SecondMoment(), c_.second);
      case StepQuantity::kLargest:
        return Largest();
      case StepQuantity::kMomentum:
        return Finish(Momentum(), c_.first);
      case StepQuantity::kParameter:
        return Finish(c_.rule.algorithm == StepAlgorithm::kAdam
                          ? AdamParameter()
                          : SgdParameter(),
                      c_.own);
      case StepQuantity::kCopy:
        return {Rounded(At(StepField::kParameterAfter)), 0.0};
    }
    return Anything();
  }

 private:
  HWY_INLINE Lanes At(StepField field) const {
    const double* column = columns_[static_cast<size_t>(field)];
    if (column == nullptr) return 0.0;
    return hn::LoadU(Tag(), column + at_);
  }

  HWY_INLINE Expected Finish(Expected x, const Format& stored) const {
    x.bound = c_.gradient.growth * x.bound;
    // The last operation's rounding is counted; that to a shorter dtype is not.
    if (stored.unit > c_.own.unit) {
      x.bound =
          x.bound + (stored.unit * (Abs(x.value) + x.bound) + stored.tiny);
    }
    const double largest = std::min(stored.largest, c_.own.largest);
    const Mask beyond = IsFinite(x.value) & (Abs(x.value) + x.bound >= largest);
    return Select(beyond, Anything(), x);
  }

  // How far what a fused step computes on with may be from what it stored.
  HWY_INLINE Lanes Unstored(Lanes stored, const Format& format) const {
    if (format.unit <= c_.scalar) return 0.0;
    return format.unit * Abs(stored) + format.tiny;
  }

  HWY_INLINE Expected Gradient() const {
    Lanes x = At(StepField::kGradient);
    Lanes error = 0.0;
    if (c_.rule.clip_value) {
      const double most = *c_.rule.clip_value;
      x = Select(x < -most, -most, Select(x > most, most, x));
    }
    if (c_.setting.gradient_scale != 1) {
      x = x * c_.setting.gradient_scale;  // itself rounded
      error = 2 * c_.gradient.unit * Abs(x) + c_.gradient.tiny;
    }
    if (c_.setting.clip != 1 || c_.setting.clip_error != 0) {
      error = error * c_.setting.clip + c_.setting.clip_error * Abs(x);
      x = x * c_.setting.clip;
      error = error + (c_.gradient.unit * Abs(x) + c_.gradient.tiny);
    }
    if (c_.gradient_is_shortened) {
      error = error + (c_.own.unit * Abs(x) + c_.own.tiny);
    }
    if (c_.rule.maximize) x = hn::Neg(x.v);
    if (c_.rule.weight_decay != 0 && !c_.rule.decoupled) {
      const Lanes decay = c_.rule.weight_decay * At(StepField::kParameter);
      error = error + (c_.scalar + c_.own.unit) * Abs(decay);
      x = x + decay;
      error = error + (c_.own.unit * (Abs(x) + error) + c_.own.tiny);
    }
    const Mask beyond = IsFinite(x) & (Abs(x) + error >= c_.gradient.largest);
    return Select(beyond, Anything(), {x, error});
  }

  // decay x before + taken x x.
  //
  // Two forms are in use, and the bound is that of the worse: two products and
  // their sum, and before + taken x (x - before) or the same from the other
  // end. 1 - decay computed in float from a rounded decay is off by one
  // round-off of 1 and not of itself.
  HWY_INLINE Expected Average(Lanes before, double decay, double taken,
                              const Expected& x) const {
    const Lanes old_part = decay * before;
    const Lanes new_part = taken * x.value;
    const Lanes value = old_part + new_part;
    const double scale = std::max(1.0, std::fabs(taken));
    const Lanes products = (c_.scalar + c_.own.unit) * Abs(old_part) +
                           c_.scalar * scale * Abs(x.value) +
                           c_.own.unit * Abs(new_part);
    const Lanes distance = Abs(x.value - before);
    const Lanes moved = std::min(std::fabs(taken), std::fabs(decay)) * distance;
    const Lanes towards =
        2 * c_.own.unit * moved + c_.scalar * scale * distance;
    return {value, Most(products, towards) + c_.own.unit * Abs(value) +
                       std::fabs(taken) * x.bound + 3 * c_.own.tiny};
  }

  HWY_INLINE Expected SecondMoment() const {
    const Expected g = Gradient();
    const Lanes square = g.value * g.value;
    const Lanes error = 2.0 * Abs(g.value) * g.bound + g.bound * g.bound +
                        2 * c_.own.unit * square + c_.own.tiny;
    Expected out = Average(At(StepField::kSecond), c_.rule.beta2,
                           1 - c_.rule.beta2, {square, error});
    // (taken x g) x g may underflow in its first product.
    out.bound = out.bound + c_.own.tiny * Abs(g.value);
    const Mask beyond =
        IsFinite(square) & (square + error >= c_.square_largest);
    return Select(IsInfinite(g.bound), g, Select(beyond, Anything(), out));
  }

  HWY_INLINE Expected Largest() const {
    const Lanes old = At(StepField::kLargest);
    const Lanes now = At(StepField::kSecondAfter);
    Expected out = {Most(old, now), 0.0};
    // A choice rounds nothing, but the two may be stored differently.
    if (c_.setting.largest != c_.setting.second) {
      out.bound =
          Unstored(out.value, c_.second) + Unstored(out.value, c_.largest);
    }
    // Whether NaN is passed on depends on the maximum that is used.
    return Select(IsNaN(old) | IsNaN(now), Anything(), out);
  }

  HWY_INLINE Expected Momentum() const {
    const Expected g = Gradient();
    if (c_.setting.first_step) return g;
    return Select(IsInfinite(g.bound), g,
                  Average(At(StepField::kMomentum), c_.rule.momentum,
                          1 - c_.rule.dampening, g));
  }

  HWY_INLINE Expected AdamParameter() const {
    const Lanes p = At(StepField::kParameter);
    const Lanes m = At(StepField::kFirstAfter);
    const Lanes v = At(c_.rule.amsgrad ? StepField::kLargestAfter
                                       : StepField::kSecondAfter);
    const double u = c_.own.unit;
    const double s = c_.scalar;
    const double tiny = c_.own.tiny;
    const double step = std::fabs(c_.rule.lr) / c_.correction1;
    const Lanes corrected = v / c_.correction2;
    const Lanes denominator =
        c_.setting.eps_inside_root
            ? Root(corrected + c_.rule.eps)
            : Root(v) / std::sqrt(c_.correction2) + c_.rule.eps;

    // Of the denominator, relative: root, its correction, quotient, epsilon or
    // both divided by the step's size, sum.
    const Lanes m_unstored = Unstored(m, c_.first);
    const Lanes v_unstored = Unstored(v, c_.second);
    const Lanes moved_root =
        RootMoved(corrected, v_unstored / c_.correction2 + tiny);
    // Infinite only as they were stored; or no epsilon, and a moment that may
    // be zero: whatever is divided by it.
    Mask anything = IsInfinite(m_unstored) | IsInfinite(v_unstored) |
                    (denominator <= moved_root);
    const Mask positive = denominator > 0.0;
    const double rounded = (u + kRootMore * s) + (c_.root_error + 3 * s) +
                           (u + kQuotientMore * s) + u;
    const Lanes below =
        rounded +
        Select(positive,
               moved_root / denominator + 2 * tiny * (1 + step) / denominator,
               0.0);
    // And of the whole quotient: learning rate, its correction and quotient,
    // the product with the moment, the second quotient.
    Lanes relative =
        below + (c_.correction_error + 2 * s + (s + kQuotientMore * s) + u +
                 (u + kQuotientMore * s));
    anything = anything | !(relative < 0.5);
    relative = relative / (1.0 - relative);
    const Lanes moved = c_.rule.lr / c_.correction1 * m / denominator;
    Lanes error = relative * Abs(moved);
    error = error + Select(positive,
                           step * m_unstored / denominator +
                               tiny * (1 + step) / denominator + tiny * step,
                           0.0);
    error = error + 2 * tiny;

    Lanes kept = p;
    if (c_.rule.decoupled && c_.rule.weight_decay != 0) {
      const double decay = std::fabs(c_.rule.lr * c_.rule.weight_decay);
      kept = p * (1 - c_.rule.lr * c_.rule.weight_decay);
      // As p x (1 - d), and as part of what is taken off at once.
      error = error + Abs(p) * ((s + u) * (1 + decay) + 4 * (u + s) * decay);
    }
    const Lanes value = kept - moved;
    error = error + (u * Abs(moved) + u * Abs(value));
    const double largest = c_.own.largest;
    Mask beyond = (denominator >= largest) | (step * Abs(m) >= largest) |
                  (Abs(p) + Abs(moved) >= largest);
    if (step > 0) beyond = beyond | (denominator >= largest * step);
    if (step >= largest) beyond = beyond | !beyond;
    // What is not finite before the step is not finite after it.
    beyond = beyond & IsFinite(p) & IsFinite(m) & IsFinite(v);
    return Select(anything | beyond, Anything(), {value, error});
  }

  HWY_INLINE Expected SgdParameter() const {
    const Lanes p = At(StepField::kParameter);
    Expected direction = {0.0, 0.0};
    if (c_.rule.momentum == 0 || c_.rule.nesterov) direction = Gradient();
    const Expected gradient = direction;
    Mask anything = IsInfinite(Lanes(0.0));
    if (c_.rule.momentum != 0) {
      const Lanes buffer = At(StepField::kMomentumAfter);
      const Lanes part = c_.rule.nesterov ? c_.rule.momentum * buffer : buffer;
      direction.value = direction.value + part;
      direction.bound = direction.bound + Unstored(buffer, c_.first);
      // Infinite as it was stored, and not as it was computed with.
      anything = IsInfinite(direction.bound);
      if (c_.rule.nesterov) {
        direction.bound =
            direction.bound +
            ((c_.scalar + c_.own.unit) * Abs(part) +
             c_.own.unit * Abs(direction.value) + 2 * c_.own.tiny);
      }
    }
    const Lanes moved = c_.rule.lr * direction.value;
    const Lanes value = p - moved;
    const Lanes bound = std::fabs(c_.rule.lr) * direction.bound +
                        (c_.scalar + c_.own.unit) * Abs(moved) +
                        c_.own.unit * Abs(value) + 2 * c_.own.tiny;
    const Mask beyond =
        IsFinite(p) & IsFinite(direction.value) &
        (Most(Abs(direction.value), Abs(p) + Abs(moved)) >= c_.own.largest);
    return Select(IsInfinite(gradient.bound), gradient,
                  Select(anything | beyond, Anything(), {value, bound}));
  }

  // RoundTo, in the format of the working copy.
  HWY_INLINE Lanes Rounded(Lanes x) const {
    if (c_.copy_precision == 0) return x;
    // Adding 1.5 * 2^52 units, and taking them off again, rounds to units:
    // sums there have just that spacing.
    const Bits bits;
    constexpr int64_t kBias = 1023;
    const auto exponent = hn::Sub(
        hn::ShiftRight<52>(hn::BitCast(bits, Abs(x).v)), hn::Set(bits, kBias));
    const auto unit =
        hn::Sub(hn::Max(exponent, hn::Set(bits, c_.copy_min_exponent)),
                hn::Set(bits, c_.copy_precision - 1));
    const Lanes power = hn::BitCast(
        Tag(), hn::ShiftLeft<52>(hn::Add(unit, hn::Set(bits, 52 + kBias))));
    const Lanes away = 1.5 * power;
    const Lanes y = hn::CopySign(((x + away) - away).v, x.v);
    const Lanes beyond = hn::CopySign(
        Lanes(c_.copy_has_infinity ? std::numeric_limits<double>::infinity()
                                   : std::numeric_limits<double>::quiet_NaN())
            .v,
        x.v);
    return Select(IsFinite(x), Select(Abs(y) <= c_.copy_largest, y, beyond),
                  Select(IsNaN(x), x, beyond));
  }

  const StepConstants& c_;
  const StepColumns& columns_;
  size_t at_;
};

void Expect(const StepConstants& constants, StepQuantity quantity,
            const StepColumns& columns, size_t count, double* value,
            double* bound) {
  for (size_t i = 0; i < count; i += kLanes) {
    const Expected x = Elements(constants, columns, i).Expect(quantity);
    hn::StoreU(x.value.v, Tag(), value + i);
    hn::StoreU(x.bound.v, Tag(), bound + i);
  }
}

HWY_INLINE Lanes Headroom(Lanes recorded, Lanes value, Lanes bound) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Lanes error = Abs(recorded - value);
  const Lanes near = Select(error == 0.0, 0.0, error / bound);
  const Lanes finite = Select(IsInfinite(bound), 0.0,
                              Select(IsFinite(recorded), near, kInfinity));
  // Inf and NaN turn into each other with the order of a formula's terms.
  return Select(IsFinite(value), finite,
                Select(IsFinite(recorded), kInfinity, 0.0));
}

void Headrooms(const double* recorded, const double* value, const double* bound,
               size_t count, double* headroom) {
  const Tag d;
  for (size_t i = 0; i < count; i += kLanes) {
    hn::StoreU(Headroom(hn::LoadU(d, recorded + i), hn::LoadU(d, value + i),
                        hn::LoadU(d, bound + i))
                   .v,
               d, headroom + i);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ttrace::steps
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {
namespace steps {

HWY_EXPORT(Expect);
HWY_EXPORT(Headrooms);

}  // namespace steps

void ExpectAfterStep(const StepConstants& constants, StepQuantity quantity,
                     const StepColumns& columns, size_t count, double* value,
                     double* bound) {
  using namespace steps;  // NOLINT(google-build-using-namespace)
  const size_t lines = count / kStepLine * kStepLine;
  HWY_DYNAMIC_DISPATCH(Expect)
  (constants, quantity, columns, lines, value, bound);
  if (lines == count) return;
  double tails[kStepFields][kStepLine] = {};
  double values[kStepLine];
  double bounds[kStepLine];
  StepColumns tail = {};
  for (size_t f = 0; f < kStepFields; ++f) {
    if (columns[f] == nullptr) continue;
    std::copy(columns[f] + lines, columns[f] + count, tails[f]);
    tail[f] = tails[f];
  }
  HWY_DYNAMIC_DISPATCH(Expect)
  (constants, quantity, tail, kStepLine, values, bounds);
  std::copy(values, values + (count - lines), value + lines);
  std::copy(bounds, bounds + (count - lines), bound + lines);
}

void HeadroomsOfStep(const double* recorded, const double* value,
                     const double* bound, size_t count, double* headroom) {
  using namespace steps;  // NOLINT(google-build-using-namespace)
  const size_t lines = count / kStepLine * kStepLine;
  HWY_DYNAMIC_DISPATCH(Headrooms)(recorded, value, bound, lines, headroom);
  if (lines == count) return;
  double tails[3][kStepLine] = {};
  double last[kStepLine];
  std::copy(recorded + lines, recorded + count, tails[0]);
  std::copy(value + lines, value + count, tails[1]);
  std::copy(bound + lines, bound + count, tails[2]);
  HWY_DYNAMIC_DISPATCH(Headrooms)
  (tails[0], tails[1], tails[2], kStepLine, last);
  std::copy(last, last + (count - lines), headroom + lines);
}

}  // namespace ttrace
#endif  // HWY_ONCE
