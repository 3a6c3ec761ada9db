#include "src/experiment/row_order.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

namespace ttrace {
namespace {

constexpr double kLeftOver = 0.01;
// A row's partner is looked for among this many neighbours on either side, in
// the order of one number a row: round-off moves rows past few others.
constexpr size_t kReach = 256;

// Rows by a weighted sum of their values; the weights are all different.
std::vector<size_t> InOrder(const std::vector<double>& rows, size_t width,
                            std::vector<double>* sums) {
  const size_t count = rows.size() / width;
  sums->assign(count, 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    (*sums)[i / width] +=
        rows[i] * std::sqrt(static_cast<double>(2 + i % width));
  }
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t x, size_t y) { return (*sums)[x] < (*sums)[y]; });
  return order;
}

double SquaredDistance(const double* a, const double* b, size_t width) {
  double sum = 0;
  for (size_t i = 0; i < width; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

}  // namespace

bool SameRowsInAnotherOrder(const std::vector<double>& a,
                            const std::vector<double>& b, size_t width) {
  if (width < kLeastRowWidth || a.size() != b.size()) return false;
  const double as_they_are = SquaredDistance(a.data(), b.data(), a.size());
  if (!std::isfinite(as_they_are) || as_they_are == 0) return false;
  std::vector<double> sums;
  std::vector<double> sums_of_b;
  const std::vector<size_t> order = InOrder(a, width, &sums);
  const std::vector<size_t> order_of_b = InOrder(b, width, &sums_of_b);
  std::vector<bool> taken(order.size(), false);
  double left = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    // Where the row would stand among those of b.
    const auto near = std::lower_bound(
        order_of_b.begin(), order_of_b.end(), sums[order[i]],
        [&](size_t row, double sum) { return sums_of_b[row] < sum; });
    const auto at = static_cast<size_t>(near - order_of_b.begin());
    const size_t begin = at - std::min(at, kReach);
    const size_t end = std::min(at + kReach, order.size());
    double nearest = std::numeric_limits<double>::infinity();
    size_t partner = 0;
    for (size_t k = begin; k < end; ++k) {
      if (taken[k]) continue;
      const double distance = SquaredDistance(
          a.data() + order[i] * width, b.data() + order_of_b[k] * width, width);
      if (distance < nearest) {
        nearest = distance;
        partner = k;
      }
    }
    left += nearest;
    if (!(left <= kLeftOver * as_they_are)) return false;
    taken[partner] = true;
  }
  return true;
}

}  // namespace ttrace
