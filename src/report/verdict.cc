// The overall verdict's names and the process's exit code.

#include "src/report/check_result.h"

namespace ttrace {

std::string_view ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kBitwiseEqual:
      return "bitwise_equal";
    case Verdict::kWithin:
      return "within";
    case Verdict::kDiverged:
      return "diverged";
    case Verdict::kInconclusive:
      return "inconclusive";
  }
  return "inconclusive";
}

int ExitCode(Verdict verdict) {
  switch (verdict) {
    case Verdict::kBitwiseEqual:
    case Verdict::kWithin:
      return 0;
    case Verdict::kDiverged:
      return 1;
    case Verdict::kInconclusive:
      return 2;
  }
  return 2;
}

}  // namespace ttrace
