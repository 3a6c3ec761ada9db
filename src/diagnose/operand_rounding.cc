#include "src/diagnose/operand_rounding.h"

#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "src/diagnose/constants.h"
#include "src/diagnose/vectors.h"

namespace ttrace {
namespace {

using Values = std::vector<double>;

struct RoundingGrid {
  int bits;
  bool scaled;
};
// fp8 (e4m3 and e5m2), which is used with scales; bfloat16 and float16.
constexpr std::array<RoundingGrid, 4> kRoundingGrids = {
    {{4, true}, {3, true}, {8, false}, {11, false}}};

Values Minus(Values a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

Values Product(const Operands& o, const Values& left, const Values& right) {
  Values out(o.rows * o.columns);
  for (size_t r = 0; r < o.rows; ++r) {
    for (size_t c = 0; c < o.columns; ++c) {
      double sum = 0;
      for (size_t k = 0; k < o.inner; ++k) {
        sum += left[r * o.inner + k] * right[c * o.inner + k];
      }
      out[r * o.columns + c] = sum;
    }
  }
  return out;
}

// Without what a bias adds.
Values Centred(const Operands& o, Values values) {
  for (size_t c = 0; c < o.columns; ++c) {
    double mean = 0;
    for (size_t r = 0; r < o.rows; ++r) mean += values[r * o.columns + c];
    mean /= static_cast<double>(o.rows);
    for (size_t r = 0; r < o.rows; ++r) values[r * o.columns + c] -= mean;
  }
  return values;
}

Values Rounded(Values values, int bits, double scale) {
  if (scale == 0) return values;
  for (double& value : values) value = RoundedTo(value, bits, scale);
  return values;
}

// The scale in [low, high] with the least rest, of `steps` + 1.
double Least(const std::function<double(double)>& rest, double low, double high,
             int steps) {
  double best = low;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= steps; ++i) {
    const double scale =
        low * std::pow(high / low, static_cast<double>(i) / steps);
    const double found = rest(scale);
    if (found < least) {
      least = found;
      best = scale;
    }
  }
  return best;
}

class ScaleSearch {
 public:
  ScaleSearch(const Operands& operands, const Values& made, RoundingGrid grid)
      : o_(operands), made_(made), grid_(grid) {
    none_ = Rest(0, 0);
  }

  // What of the square of the deviation is left.
  double Run() {
    left_ = Search([&](double scale) { return Rest(scale, right_); });
    right_ = Search([&](double scale) { return Rest(left_, scale); });
    // Each was looked for among the errors of the other.
    if (grid_.scaled && left_ != 0 && right_ != 0) {
      left_ = Zoom([&](double scale) { return Rest(scale, right_); }, left_);
      right_ = Zoom([&](double scale) { return Rest(left_, scale); }, right_);
    }
    return Rest(left_, right_) / none_;
  }

  OperandRounding Result() const {
    return {grid_.bits, left_, right_,
            Product(o_, Rounded(o_.left, grid_.bits, left_),
                    Rounded(o_.right, grid_.bits, right_))};
  }

 private:
  double Rest(double left, double right) const {
    return SquaredNorm(
        Centred(o_, Minus(Product(o_, Rounded(o_.left, grid_.bits, left),
                                  Rounded(o_.right, grid_.bits, right)),
                          made_)));
  }

  // 0 if the operand is better left alone.
  double Search(const std::function<double(double)>& rest) const {
    double scale = 1;
    if (grid_.scaled) scale = Zoom(rest, Least(rest, 1, 2, kCoarseScales));
    return rest(scale) < rest(0) ? scale : 0;
  }

  static double Zoom(const std::function<double(double)>& rest, double scale) {
    double step = std::pow(2.0, 1.0 / kCoarseScales);
    for (int i = 0; i < kZooms; ++i) {
      scale = Least(rest, scale / step, scale * step, 8);
      step = std::pow(step, 0.25);
    }
    return scale;
  }

  const Operands& o_;
  const Values& made_;
  RoundingGrid grid_;
  double none_ = 0;
  double left_ = 0;
  double right_ = 0;
};

}  // namespace

double RoundedTo(double value, int bits, double scale) {
  int exponent = 0;
  const double mantissa = std::frexp(value / scale, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)),
                    exponent - bits) *
         scale;
}

OperandRounding FitRounding(const Operands& operands, const Values& made) {
  OperandRounding out;
  out.product = Product(operands, operands.left, operands.right);
  const double deviation =
      SquaredNorm(Centred(operands, Minus(out.product, made)));
  // A sum of terms whose errors know nothing of each other is as wrong as one
  // whose terms did not cancel.
  const double size = SquaredNorm(operands.left) * SquaredNorm(operands.right) /
                      static_cast<double>(operands.inner);
  double least = kUnexplainedByRounding;
  for (const RoundingGrid grid : kRoundingGrids) {
    const double expected = std::ldexp(1.0, -grid.bits);
    const double ratio = std::sqrt(deviation / size) / expected;
    if (!(ratio >= kLeastDeviation && ratio <= kMostDeviation)) continue;
    ScaleSearch fit(operands, made, grid);
    const double rest = fit.Run();
    if (!(rest <= least)) continue;
    least = rest;
    out = fit.Result();
  }
  return out;
}

}  // namespace ttrace
