#include "src/report/html/packed_values.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace ttrace {
namespace {

bool IsDigit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

uint16_t PackNumber(double value) {
  if (std::isnan(value)) return 65534;
  if (std::isinf(value)) return 65535;
  if (value <= 0) return 1;
  const double step = 2 + std::round((std::log10(value) + 20) * 65531 / 40);
  return static_cast<uint16_t>(std::clamp(step, 2.0, 65533.0));
}

std::string ProvenanceTemplate(std::string_view provenance) {
  const size_t times = provenance.find(" x ");
  if (times == std::string_view::npos) return std::string(provenance);
  // The number before it: "1.3e-02".
  size_t begin = times;
  while (begin > 0 && (IsDigit(provenance[begin - 1]) ||
                       std::string_view(".e+-").find(provenance[begin - 1]) !=
                           std::string_view::npos)) {
    --begin;
  }
  const std::string_view number = provenance.substr(begin, times - begin);
  if (number.empty() || !IsDigit(number[0]) ||
      number.find('e') == std::string_view::npos) {
    return std::string(provenance);
  }
  return std::string(provenance.substr(0, begin)) + "{}" +
         std::string(provenance.substr(times));
}

}  // namespace ttrace
