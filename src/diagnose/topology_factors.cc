#include "src/diagnose/topology_factors.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <utility>

#include "src/diagnose/constants.h"

namespace ttrace {
namespace {

struct SizeProduct {
  double value = 1;
  std::string over;   // factors above the line
  std::string under;  // and below
  int factors = 0;
  bool expected = true;
};

std::string Name(const SizeProduct& product) {
  if (product.under.empty()) return product.over;
  return (product.over.empty() ? "1" : product.over) + " / " +
         (product.under.front() == '(' ? product.under
                                       : "(" + product.under + ")");
}

void Multiply(const RunSize& size, int power, SizeProduct* product) {
  const int times = std::abs(power);
  std::string word = fmt::format("{} = {:.10g}", size.name, size.size);
  if (times > 1) word = fmt::format("({})^{}", word, times);
  std::string& side = power > 0 ? product->over : product->under;
  side += side.empty() ? word : " x " + word;
  product->value *= std::pow(size.size, power);
  product->factors += times;
  product->expected = product->expected && size.expected;
}

}  // namespace

std::vector<std::string> NamesOfFactor(double value,
                                       const std::vector<RunSize>& sizes,
                                       double tolerance) {
  std::vector<SizeProduct> products = {SizeProduct{}};
  for (const RunSize& size : sizes) {
    if (!(size.size > 0) || size.size == 1) continue;
    const size_t before = products.size();
    for (size_t i = 0; i < before; ++i) {
      for (const int power : {1, -1, 2, -2}) {
        if (products[i].factors + std::abs(power) > kMostSizes) continue;
        SizeProduct product = products[i];
        Multiply(size, power, &product);
        products.push_back(std::move(product));
      }
    }
  }
  std::vector<std::string> names;
  std::pair<bool, int> best = {true, kMostSizes + 1};
  for (const SizeProduct& product : products) {
    // Sizes that cancel each other name nothing: (cp = 2)^2 / (dp = 4).
    if (product.factors == 0 || product.value == 1 ||
        !(std::fabs(value / product.value - 1) <= tolerance)) {
      continue;
    }
    const std::pair rank(!product.expected, product.factors);
    if (rank > best) continue;
    if (rank < best) names.clear();
    best = rank;
    names.push_back(Name(product));
  }
  return names;
}

}  // namespace ttrace
