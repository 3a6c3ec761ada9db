#include "src/judge/small_sample.h"

#include <algorithm>
#include <cmath>

#include "src/judge/constants.h"

namespace ttrace {
namespace {

// Continued fraction of the incomplete beta function, by Lentz's method as
// modified by Thompson and Barnett. Converges fast for x < (a + 1)/(a + b + 2).
double BetaFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  auto away_from_zero = [](double v) {
    return std::fabs(v) < kTiny ? kTiny : v;
  };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double fraction = d;
  for (int m = 1; m <= 10000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    fraction *= d * c;
    const double odd =
        -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    const double step = d * c;
    fraction *= step;
    if (std::fabs(step - 1) < 1e-15) break;
  }
  return fraction;
}

// I_x(a, b), and its complement without cancellation when `upper`.
double RegularizedBeta(double a, double b, double x, bool upper) {
  if (x <= 0) return upper ? 1 : 0;
  if (x >= 1) return upper ? 0 : 1;
  const double log_front = std::lgamma(a + b) - std::lgamma(a) -
                           std::lgamma(b) + a * std::log(x) +
                           b * std::log1p(-x);
  const double front = std::exp(log_front);
  if (x < (a + 1) / (a + b + 2)) {
    const double lower = front * BetaFraction(a, b, x) / a;
    return upper ? 1 - lower : lower;
  }
  const double above = front * BetaFraction(b, a, 1 - x) / b;
  return upper ? above : 1 - above;
}

double FTail(double x, double d1, double d2) {
  return RegularizedBeta(d1 / 2, d2 / 2, d1 * x / (d1 * x + d2), true);
}

}  // namespace

double FDistribution(double x, double d1, double d2) {
  return RegularizedBeta(d1 / 2, d2 / 2, d1 * x / (d1 * x + d2), false);
}

double FUpperQuantile(double risk, double d1, double d2) {
  double low = 0;
  double high = 1;
  while (FTail(high, d1, d2) > risk && high < 1e300) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-12 * high; ++i) {
    const double middle = 0.5 * (low + high);
    (FTail(middle, d1, d2) > risk ? low : high) = middle;
  }
  return high;
}

double NoiseFactor(double elements, int legs, double risk) {
  const double n = std::max(1.0, elements);
  const double s = std::max(1, legs);
  // Of many elements the quantile is close to 1: sqrt(F) exceeds 2 with a
  // probability below exp(-n / 8), whatever the number of legs.
  if (n > 1024) return kNoiseFactor;
  return std::max(kNoiseFactor, std::sqrt(FUpperQuantile(risk, n, s * n)));
}

double SampleFactor(int degrees, double risk) {
  return std::sqrt(FUpperQuantile(risk, 1, std::max(1, degrees)));
}

}  // namespace ttrace
