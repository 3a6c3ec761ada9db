#include "src/diagnose/operand_rounding.h"

#include <array>
#include <cmath>
#include <functional>
#include <limits>

namespace ttrace {
namespace {

using Values = std::vector<double>;

struct Grid {
  int bits;
  bool scaled;
};
// fp8 (e4m3 and e5m2), which is used with scales; bfloat16 and float16.
constexpr std::array<Grid, 4> kGrids = {Grid{4, true}, Grid{3, true},
                                        Grid{8, false}, Grid{11, false}};

// Another scale by a part d moves a value by d x 2^(bits - 1) steps or a little
// more: at d = 1/64 / 2 that is a tenth of a step for 4 bits, where errors are
// alike still.
constexpr int kCoarse = 64;
// Each time in a quarter of the step: to 4e-5, where one in a thousand values
// is rounded to another side.
constexpr int kZooms = 4;

// An error of half a step in one operand is 0.39 x 2^-bits of its size in root
// mean square if all mantissas are alike, at most 0.58; two operands have
// sqrt(2) of it. Twice as much either way is left for how values are spread.
constexpr double kLeast = 0.2;
constexpr double kMost = 1.6;

// Of the square of what deviates: three quarters have to be explained. A
// random direction among several hundred scales explains less than a fifth of
// 64 values.
constexpr double kUnexplained = 0.25;

double SumOfSquares(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

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

class Fit {
 public:
  Fit(const Operands& operands, const Values& made, Grid grid)
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
    return SumOfSquares(
        Centred(o_, Minus(Product(o_, Rounded(o_.left, grid_.bits, left),
                                  Rounded(o_.right, grid_.bits, right)),
                          made_)));
  }

  // 0 if the operand is better left alone.
  double Search(const std::function<double(double)>& rest) const {
    double scale = 1;
    if (grid_.scaled) scale = Zoom(rest, Least(rest, 1, 2, kCoarse));
    return rest(scale) < rest(0) ? scale : 0;
  }

  static double Zoom(const std::function<double(double)>& rest, double scale) {
    double step = std::pow(2.0, 1.0 / kCoarse);
    for (int i = 0; i < kZooms; ++i) {
      scale = Least(rest, scale / step, scale * step, 8);
      step = std::pow(step, 0.25);
    }
    return scale;
  }

  const Operands& o_;
  const Values& made_;
  Grid grid_;
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
      SumOfSquares(Centred(operands, Minus(out.product, made)));
  // A sum of terms whose errors know nothing of each other is as wrong as one
  // whose terms did not cancel.
  const double size = SumOfSquares(operands.left) *
                      SumOfSquares(operands.right) /
                      static_cast<double>(operands.inner);
  double least = kUnexplained;
  for (const Grid grid : kGrids) {
    const double expected = std::ldexp(1.0, -grid.bits);
    const double ratio = std::sqrt(deviation / size) / expected;
    if (!(ratio >= kLeast && ratio <= kMost)) continue;
    Fit fit(operands, made, grid);
    const double rest = fit.Run();
    if (!(rest <= least)) continue;
    least = rest;
    out = fit.Result();
  }
  return out;
}

}  // namespace ttrace
