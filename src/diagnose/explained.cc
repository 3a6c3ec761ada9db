#include "src/diagnose/explained.h"

#include <cmath>

#include "src/diagnose/constants.h"

namespace ttrace {
double BitsOfMatch(double tolerance, int64_t width, int64_t strangers) {
  return std::fmax(0, -std::log2(tolerance) * static_cast<double>(width) -
                          std::log2(static_cast<double>(strangers)));
}

bool IsEnough(const Explained& explained) {
  return explained.explained > 0 &&
         explained.explained >= kMostOfTheWrong * explained.wrong &&
         explained.bits >= kFewestBits + explained.wrong;
}

}  // namespace ttrace
