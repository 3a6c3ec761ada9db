#include "src/numeric/few_elements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>

namespace ttrace {
namespace {

// Chances below this are left alone: one element that differs is then exact.
constexpr double kMeets = 1e-3;
// Of those with more than is allowed for. Elements need not be equal, as is
// assumed: less than kMeets.
constexpr double kMoreThanAllowed = 2e-4;
// From so many expected meetings on the normal interval is the wider one.
constexpr double kManyMeetings = 16;

// The smallest k such that meetings which add are hardly ever k more than those
// which take away, nor k fewer: both are Poisson with half of `expected`.
size_t MostMeetings(double expected) {
  // Of kManyMeetings / 2, 64 are as good as infinitely many.
  std::array<double, 64> poisson{};
  poisson[0] = std::exp(-expected / 2);
  for (size_t i = 1; i < poisson.size(); ++i) {
    poisson[i] = poisson[i - 1] * expected / 2 / static_cast<double>(i);
  }
  double more = 1;  // the chance of more than k
  for (size_t k = 0; k < poisson.size(); ++k) {
    double exactly = 0;
    for (size_t i = 0; i + k < poisson.size(); ++i) {
      exactly += poisson[i] * poisson[i + k];
    }
    more -= k == 0 ? exactly : 2 * exactly;
    if (more <= kMoreThanAllowed) return k;
  }
  return poisson.size();
}

}  // namespace

FewElements IfFewElementsDiffer(std::vector<double> squares) {
  const auto buckets = static_cast<double>(squares.size());
  double sum = 0;
  double fourth = 0;
  for (const double square : squares) {
    sum += square;
    fourth += square * square;
  }
  // As many equal elements as would look like this. Two of them may be one, or
  // none: one more.
  const double elements = fourth > 0 ? sum * sum / fourth : 0;
  const double meetings = elements * (elements + 1) / 2 / buckets;
  if (!(meetings > kMeets) || meetings >= kManyMeetings) return {};
  const size_t most = std::min(squares.size(), MostMeetings(meetings));
  // A bucket of two has at most twice the sum of their squares; two that are
  // gone had twice that of one.
  std::partial_sort(squares.begin(),
                    squares.begin() + static_cast<std::ptrdiff_t>(most),
                    squares.end(), std::greater<>());
  FewElements out;
  for (size_t i = 0; i < most; ++i) out.too_large += squares[i] / 2;
  out.too_small = 2 * static_cast<double>(most) * sum / elements;
  return out;
}

}  // namespace ttrace
